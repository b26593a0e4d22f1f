// Package page renders web pages for people: elements as Go values whose content is always escaped, one style sheet
// and one script inside the page, and headers that forbid everything else. It knows nothing about accelerators.
package page

import (
	"bytes"
	"html"
	"strings"
	"unicode"
)

// Node is an element, an attribute of the element that it is given to, a text, or several nodes in a row. The zero
// Node renders nothing.
type Node struct {
	tag      string // of an element
	name     string // of an attribute
	text     string // the text, or the value of the attribute
	own      string // written unescaped: a file of this package
	attrs    []Node
	children []Node
}

// El returns an element.
func El(tag string, parts ...Node) Node {
	n := Node{tag: tag}
	n.Add(parts...)
	return n
}

// Add appends attributes and content.
func (n *Node) Add(parts ...Node) {
	for _, p := range parts {
		if p.name != "" {
			n.attrs = append(n.attrs, p)
		} else {
			n.children = append(n.children, p)
		}
	}
}

// Row returns nodes in a row, without an element around them.
func Row(parts ...Node) Node { return El("", parts...) }

// Text returns text that is shown literally.
func Text(s string) Node { return Node{text: s} }

// Set returns an attribute. Its value is escaped but not checked: text from people or devices may be in a title, but
// must not be where a browser interprets it (href, src, style, on…).
func Set(name, value string) Node { return Node{name: name, text: value} }

// Class returns a class attribute; empty names are dropped, and without a name there is none.
func Class(names ...string) Node {
	words := strings.Fields(strings.Join(names, " "))
	if len(words) == 0 {
		return Node{}
	}
	return Set("class", strings.Join(words, " "))
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
		b.WriteString(" " + a.name + `="` + escape(a.text) + `"`)
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
	case "meta", "link", "br", "input", "rect", "circle", "polyline":
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
