package accel

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"text/template/parse"
)

// Template is a text of a definition with Go templates in it (text/template), limited to what definitions need:
// fields of [Runtime], if, with and else, and the functions and, or, not, eq, ne, lt, le, gt, ge, len, print and
// printf. Definitions may come from strangers, so nothing repeats, and text and result have at most 64 KiB.
//
// text/template parses it and filling.go executes it: with the execution of text/template, which calls methods by
// name, the linker keeps every method of every type, and the agent had 11 % more memory resident.
type Template struct{ tree *parse.Tree }

// maxText is the most bytes that the text of a template, its result, and the arguments of one call may have.
const maxText = 64 << 10

// errLong says that there is more than maxText.
var errLong = errors.New("more than 64 KiB of text")

// wide matches a verb of printf that could make a short text long: with a width or precision of three digits or more,
// with one that is an argument, or with the index of an argument, which repeats it.
var wide = regexp.MustCompile(`%[-+# .0-9]*([0-9]{3}|[*\[])`)

// ParseTemplate parses a text, and refuses what a definition may not contain. The name is used in error messages.
func ParseTemplate(name, text string) (Template, error) {
	if len(text) > maxText {
		return Template{}, fmt.Errorf("template: %s: %w", name, errLong)
	}
	known := map[string]any{}
	for _, f := range []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "print", "printf"} {
		known[f] = true
	}
	trees, err := parse.Parse(name, text, "", "", known)
	if err != nil {
		return Template{}, err
	}
	if len(trees) > 1 {
		return Template{}, fmt.Errorf("template: %s: a definition cannot define templates", name)
	}
	if err := permitted(trees[name].Root); err != nil {
		return Template{}, fmt.Errorf("template: %s: %w", name, err)
	}
	return Template{trees[name]}, nil
}

// Fill fills the template with facts.
func (t Template) Fill(r Runtime) (string, error) {
	f := filling{root: r}
	if err := f.list(t.tree.Root, r); err != nil {
		return "", fmt.Errorf("template: %s: %w", t.tree.Name, err)
	}
	return f.out.String(), nil
}

// permitted returns an error for what a definition may not contain. The parser has refused unknown functions.
func permitted(nodes ...parse.Node) (err error) {
	for _, n := range nodes {
		switch n := n.(type) {
		case *parse.TextNode, *parse.DotNode, *parse.FieldNode, *parse.StringNode, *parse.BoolNode,
			*parse.IdentifierNode, // a function
			*parse.VariableNode:   // "$", because nothing declares another one
		case *parse.NumberNode:
			if !n.IsInt {
				err = fmt.Errorf("%s is not a whole number", n)
			}
		case *parse.ListNode:
			if n != nil { // there is an else
				err = permitted(n.Nodes...)
			}
		case *parse.ActionNode:
			err = permitted(n.Pipe)
		case *parse.IfNode:
			err = permitted(n.Pipe, n.List, n.ElseList)
		case *parse.WithNode:
			err = permitted(n.Pipe, n.List, n.ElseList)
		case *parse.PipeNode:
			if len(n.Decl) > 0 {
				err = errors.New("variables cannot be used in a definition")
			}
			for _, c := range n.Cmds {
				err = cmp.Or(err, permitted(c.Args...))
			}
		default:
			err = fmt.Errorf("%s cannot be used in a definition", n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
