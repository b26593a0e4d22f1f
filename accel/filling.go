package accel

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"text/template/parse"
)

// filling is one execution of a [Template]. A value is a string, an int, a bool, or the [Runtime] itself.
// [permitted] has refused every other node.
type filling struct {
	root Runtime
	out  bounded
}

// list executes nodes; "." in them is dot.
func (f *filling) list(l *parse.ListNode, dot any) (err error) {
	if l == nil { // there is no else
		return nil
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			_, err = f.out.Write(n.Text)
		case *parse.ActionNode:
			var v any
			if v, err = f.value(n.Pipe, dot); err == nil {
				_, err = fmt.Fprint(&f.out, v)
			}
		case *parse.IfNode:
			err = f.branch(&n.BranchNode, dot, false)
		case *parse.WithNode:
			err = f.branch(&n.BranchNode, dot, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// branch executes an if, or a with, which also makes the value the dot.
func (f *filling) branch(n *parse.BranchNode, dot any, with bool) error {
	v, err := f.value(n.Pipe, dot)
	switch {
	case err != nil:
		return err
	case !truth(v):
		return f.list(n.ElseList, dot)
	case with:
		dot = v
	}
	return f.list(n.List, dot)
}

func (f *filling) value(n parse.Node, dot any) (v any, err error) {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.FieldNode:
		return field(dot, n.Ident)
	case *parse.VariableNode: // "$"
		return field(f.root, n.Ident[1:])
	case *parse.StringNode:
		return n.Text, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.NumberNode:
		return int(n.Int64), nil
	case *parse.IdentifierNode:
		return f.call(n.Ident, nil, dot, nil)
	case *parse.PipeNode: // each command gets the value of the one before it as its last argument
		var piped []any
		for _, c := range n.Cmds {
			if v, err = f.command(c, dot, piped); err != nil {
				return nil, err
			}
			piped = []any{v}
		}
	}
	return v, nil
}

func (f *filling) command(c *parse.CommandNode, dot any, piped []any) (any, error) {
	if name, ok := c.Args[0].(*parse.IdentifierNode); ok {
		return f.call(name.Ident, c.Args[1:], dot, piped)
	}
	if len(c.Args) > 1 || len(piped) > 0 {
		return nil, fmt.Errorf("can't give argument to non-function %s", c.Args[0])
	}
	return f.value(c.Args[0], dot)
}

// call calls a function. "and" and "or" end at the argument that decides, and do not look at the others.
func (f *filling) call(name string, nodes []parse.Node, dot any, piped []any) (any, error) {
	logic := name == "and" || name == "or"
	var args []any
	for _, n := range nodes {
		v, err := f.value(n, dot)
		if err != nil || logic && truth(v) == (name == "or") {
			return v, err
		}
		args = append(args, v)
	}
	args = append(args, piped...)
	if logic {
		if len(args) == 0 {
			return nil, fmt.Errorf("%s has no argument", name)
		}
		return args[len(args)-1], nil // only the last one can decide now
	}
	v, err := apply(name, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// field follows a chain of field names from v.
func field(v any, names []string) (any, error) {
	for _, name := range names {
		r, ok := v.(Runtime)
		found := reflect.ValueOf(r).FieldByName(name)
		if !ok || !found.IsValid() {
			return nil, fmt.Errorf("can't evaluate field %s in type %T", name, v)
		}
		v = found.String()
	}
	return v, nil
}

// truth reports whether v is not empty. A Runtime never is.
func truth(v any) bool {
	_, all := v.(Runtime)
	return all || !reflect.ValueOf(v).IsZero()
}

var (
	errArguments = errors.New("wrong number of arguments")
	errTypes     = errors.New("incompatible types for comparison")
)

// apply applies a function of text/template other than "and" and "or".
func apply(name string, args []any) (any, error) {
	fixed := 2 // arguments
	switch name {
	case "print":
		return printed(args)
	case "printf":
		return formatted(args)
	case "eq":
		return oneOf(args)
	case "not", "len":
		fixed = 1
	}
	if len(args) != fixed {
		return nil, errArguments
	}
	switch name {
	case "not":
		return !truth(args[0]), nil
	case "len":
		if s, ok := args[0].(string); ok {
			return len(s), nil
		}
		return nil, fmt.Errorf("%v is not a text", args[0])
	case "ne":
		equal, err := equals(args[0], args[1])
		return !equal, err
	}
	c, err := compare(args[0], args[1])
	return map[string]bool{"lt": c < 0, "le": c <= 0, "gt": c > 0, "ge": c >= 0}[name], err
}

// oneOf is the function eq: whether the first argument is equal to one of the others.
func oneOf(args []any) (any, error) {
	if len(args) < 2 {
		return nil, errArguments
	}
	for _, other := range args[1:] {
		if equal, err := equals(args[0], other); equal || err != nil {
			return equal, err
		}
	}
	return false, nil
}

func equals(a, b any) (bool, error) {
	if reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false, errTypes
	}
	return a == b, nil
}

// compare orders two strings or two numbers.
func compare(a, b any) (int, error) {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	case int:
		if y, ok := b.(int); ok {
			return cmp.Compare(x, y), nil
		}
	}
	return 0, errTypes
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
func printed(args []any) (any, error) {
	if err := room(args...); err != nil {
		return nil, err
	}
	return fmt.Sprint(args...), nil
}

// formatted is the function printf.
func formatted(args []any) (any, error) {
	if len(args) == 0 {
		return nil, errArguments
	}
	format, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("the format is of type %T", args[0])
	}
	if verb := wide.FindString(strings.ReplaceAll(format, "%%", "")); verb != "" {
		return nil, fmt.Errorf("%q: a width has at most two digits, and arguments come in order", verb)
	}
	if err := room(args...); err != nil {
		return nil, err
	}
	return fmt.Sprintf(format, args[1:]...), nil
}
