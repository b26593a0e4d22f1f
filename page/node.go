// Package page renders web pages for people: elements as Go values whose content is always escaped, one style sheet
// and one script inside the page, and headers that forbid everything else. It knows nothing about accelerators. It
// does not use html/template, because that calls methods by name, which makes the linker keep every method of every
// type.
package page

import (
	"bytes"
	"html"
	"strings"
	"unicode"
)

// Part is what an element is made of: a [Node], a [Text] or an [Attr].
type Part interface{ put(into *Node) }

// Node is an element, a text, or several nodes in a row. The zero Node renders nothing.
type Node struct {
	tag      string // empty for a text and for a row
	text     string
	own      string // written unescaped: a file of this package
	attrs    []Attr
	children []Node
}

// Text is text that is shown literally.
type Text string

// Attr is an attribute of an element; without a name it is ignored. Its value is escaped but not checked: text from
// people or devices may be in a title, but must not be where a browser interprets it (href, src, style, on…).
type Attr struct{ Name, Value string }

func (n Node) put(into *Node) { into.children = append(into.children, n) }
func (t Text) put(into *Node) { into.children = append(into.children, Node{text: string(t)}) }

func (a Attr) put(into *Node) {
	if a.Name != "" {
		into.attrs = append(into.attrs, a)
	}
}

// Into appends the node to the content of another one.
func (n Node) Into(other *Node) { n.put(other) }

// Into appends the text to the content of a node.
func (t Text) Into(n *Node) { t.put(n) }

// Set sets an attribute.
func Set(name, value string) Attr { return Attr{name, value} }

// El returns an element.
func El(tag string, parts ...Part) Node {
	n := Node{tag: tag}
	for _, p := range parts {
		p.put(&n)
	}
	return n
}

// Row returns parts in a row, without an element around them.
func Row(parts ...Part) Node { return El("", parts...) }

// Class returns a class attribute; empty names are dropped.
func Class(names ...string) Attr {
	return Attr{"class", strings.Join(strings.Fields(strings.Join(names, " ")), " ")}
}

// When returns n if yes is true, and an empty node otherwise.
func When(yes bool, n Node) Node {
	if !yes {
		return Node{}
	}
	return n
}

// write appends the node as HTML that is also well-formed XML.
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

// escape makes s safe as HTML text: no markup, no invalid UTF-8, no control characters for a terminal or a parser.
func escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�")))
}
