// Package page writes what people look at in a browser: elements as Go values with everything in them escaped, one
// style sheet and one script that are in the page itself, and headers that forbid everything else. It knows nothing
// about accelerators. It is not html/template, because that calls methods by name, and then the linker keeps every
// method of every type.
package page

import (
	"bytes"
	"html"
	"strings"
	"unicode"
)

// Part is what an element is made of: a [Node], a [Text] or an [Attr].
type Part interface{ put(into *Node) }

// Node is an element, a text, or several parts in a row. The zero one is nothing.
type Node struct {
	tag      string // empty for a text and for a row
	text     string
	own      string // written as it is: a file of this package
	attrs    []Attr
	children []Node
}

// Text is a text; all of it is shown as it is.
type Text string

// Attr is an attribute of an element. One without a name is none. Its value is escaped and not judged: what people or
// devices say may be in a title, and must not be where a browser runs it (href, src, style, on…).
type Attr struct{ Name, Value string }

func (n Node) put(into *Node) { into.children = append(into.children, n) }
func (t Text) put(into *Node) { into.children = append(into.children, Node{text: string(t)}) }

func (a Attr) put(into *Node) {
	if a.Name != "" {
		into.attrs = append(into.attrs, a)
	}
}

// Into puts the node behind what is in another one.
func (n Node) Into(other *Node) { n.put(other) }

// Into puts the text behind what is in a node.
func (t Text) Into(n *Node) { t.put(n) }

// Set sets an attribute.
func Set(name, value string) Attr { return Attr{name, value} }

// El makes an element.
func El(tag string, parts ...Part) Node {
	n := Node{tag: tag}
	for _, p := range parts {
		p.put(&n)
	}
	return n
}

// Row is parts one after the other, without an element around them.
func Row(parts ...Part) Node { return El("", parts...) }

// Class is the attribute of that name; empty words are left out.
func Class(names ...string) Attr {
	return Attr{"class", strings.Join(strings.Fields(strings.Join(names, " ")), " ")}
}

// When is n where yes is true, and nothing otherwise.
func When(yes bool, n Node) Node {
	if !yes {
		return Node{}
	}
	return n
}

// write appends the node as HTML that is well-formed XML too.
func (n Node) write(b *bytes.Buffer) {
	if n.tag == "" {
		b.WriteString(escape(n.text) + n.own)
		for _, c := range n.children {
			c.write(b)
		}
		return
	}
	b.WriteString("<" + n.tag)
	for _, a := range n.attrs {
		b.WriteString(" " + a.Name + `="` + escape(a.Value) + `"`)
	}
	if len(n.children) == 0 && void(n.tag) {
		b.WriteString("/>")
		return
	}
	b.WriteString(">")
	for _, c := range n.children {
		c.write(b)
	}
	b.WriteString("</" + n.tag + ">")
}

// void reports whether an element never has an end tag in HTML, or may be empty in SVG.
func void(tag string) bool {
	switch tag {
	case "meta", "link", "br", "input", "rect", "circle":
		return true
	}
	return false
}

// escape makes s a text of HTML: no markup, no byte that is not a character, nothing that a terminal or a parser obeys.
func escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�")))
}
