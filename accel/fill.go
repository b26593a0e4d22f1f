package accel

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"text/template/parse"
)

// Template is a text of a definition with Go templates in it (text/template), limited to what definitions need:
// fields of [Runtime], if, with and else, and the functions and, or, not, eq, ne, lt, le, gt, ge, len, print and
// printf. Definitions may come from strangers, so nothing repeats, and text and result have at most 64 KiB.
type Template struct{ filled *template.Template }

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
	for _, f := range []string{
		"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "print", "printf",
	} {
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
	t := template.New(name).Funcs(template.FuncMap{"print": printed, "printf": formatted})
	t, err = t.AddParseTree(name, trees[name])
	return Template{t}, err
}

// Fill fills the template with facts.
func (t Template) Fill(r Runtime) (string, error) {
	var out bounded
	err := t.filled.Execute(&out, r)
	return out.String(), err
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

// bounded is the result of a template, up to maxText.
type bounded struct{ strings.Builder }

// Write appends b if there is room.
func (t *bounded) Write(b []byte) (int, error) {
	if t.Len()+len(b) > maxText {
		return 0, errLong
	}
	return t.Builder.Write(b)
}

// room returns an error if arguments are too long to print.
func room(args ...any) error {
	var all bounded
	for _, a := range args {
		if _, err := fmt.Fprint(&all, a); err != nil {
			return err
		}
	}
	return nil
}

// printed is the function print.
func printed(args ...any) (string, error) {
	if err := room(args...); err != nil {
		return "", err
	}
	return fmt.Sprint(args...), nil
}

// formatted is the function printf.
func formatted(format string, args ...any) (string, error) {
	if verb := wide.FindString(strings.ReplaceAll(format, "%%", "")); verb != "" {
		return "", fmt.Errorf("%q: a width has at most two digits, and arguments come in order", verb)
	}
	if err := room(append(args, format)...); err != nil {
		return "", err
	}
	return fmt.Sprintf(format, args...), nil
}
