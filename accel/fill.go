package accel

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"text/template/parse"
)

// Template is a text of a definition with Go templates in it (text/template), limited to what definitions need:
// fields of [Runtime], if, with and else, and the functions and, or, not, eq, ne, lt, le, gt, ge, len, print and
// printf. It is executed here and not by text/template, because that package calls methods by name, which makes the
// linker keep every method of every type: megabytes.
type Template struct{ tree *parse.Tree }

// ParseTemplate parses a text. The name is used in error messages, which are those of text/template.
func ParseTemplate(name, text string) (Template, error) {
	known := map[string]any{}
	for f := range templateFunctions() {
		known[f] = true
	}
	trees, err := parse.Parse(name, text, "", "", known)
	if err != nil {
		return Template{}, err
	}
	if len(trees) > 1 || trees[name] == nil && len(trees) > 0 {
		return Template{}, fmt.Errorf("template: %s: a definition cannot define templates", name)
	}
	return Template{trees[name]}, nil
}

// Fill fills the template with facts.
func (t Template) Fill(r Runtime) (string, error) {
	if t.tree == nil { // the text is empty
		return "", nil
	}
	var out strings.Builder
	f := filling{name: t.tree.Name, root: r, out: &out}
	if err := f.list(t.tree.Root, r); err != nil {
		return "", fmt.Errorf("template: %s: %w", t.tree.Name, err)
	}
	return out.String(), nil
}

// filling is the state of one execution.
type filling struct {
	name string
	root Runtime
	out  *strings.Builder
}

func (f *filling) list(l *parse.ListNode, dot any) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := f.node(n, dot); err != nil {
			return err
		}
	}
	return nil
}

func (f *filling) node(n parse.Node, dot any) error {
	switch n := n.(type) {
	case *parse.TextNode:
		f.out.Write(n.Text)
	case *parse.CommentNode:
	case *parse.ActionNode:
		v, err := f.pipe(n.Pipe, dot)
		if err != nil {
			return err
		}
		fmt.Fprint(f.out, v)
	case *parse.IfNode:
		return f.branch(&n.BranchNode, dot, false)
	case *parse.WithNode:
		return f.branch(&n.BranchNode, dot, true)
	default:
		return fmt.Errorf("%s cannot be used in a definition", n)
	}
	return nil
}

// branch executes an if, or a with, which also makes the value the dot.
func (f *filling) branch(n *parse.BranchNode, dot any, with bool) error {
	v, err := f.pipe(n.Pipe, dot)
	if err != nil {
		return err
	}
	if !truthful(v) {
		return f.list(n.ElseList, dot)
	}
	if with {
		dot = v
	}
	return f.list(n.List, dot)
}

// pipe evaluates commands; each gets the previous command's value as its last argument.
func (f *filling) pipe(p *parse.PipeNode, dot any) (v any, err error) {
	if len(p.Decl) > 0 {
		return nil, errors.New("variables cannot be used in a definition")
	}
	for i, c := range p.Cmds {
		var piped []any
		if i > 0 {
			piped = []any{v}
		}
		if v, err = f.command(c, dot, piped); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (f *filling) command(c *parse.CommandNode, dot any, piped []any) (any, error) {
	name, call := c.Args[0].(*parse.IdentifierNode)
	if !call {
		if len(c.Args) > 1 || len(piped) > 0 {
			return nil, fmt.Errorf("can't give argument to non-function %s", c.Args[0])
		}
		return f.value(c.Args[0], dot)
	}
	var args []any
	for _, n := range c.Args[1:] {
		v, err := f.value(n, dot)
		if err != nil {
			return nil, err
		}
		if name.Ident == "and" && !truthful(v) || name.Ident == "or" && truthful(v) {
			return v, nil // as in text/template, the other arguments are not evaluated
		}
		args = append(args, v)
	}
	v, err := templateFunctions()[name.Ident](append(args, piped...))
	if err != nil {
		return nil, fmt.Errorf("error calling %s: %w", name.Ident, err)
	}
	return v, nil
}

func (f *filling) value(n parse.Node, dot any) (any, error) {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.FieldNode:
		return fields(dot, n.Ident)
	case *parse.VariableNode: // "$" alone is the root
		return fields(f.root, n.Ident[1:])
	case *parse.StringNode:
		return n.Text, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.NumberNode:
		if !n.IsInt {
			return nil, fmt.Errorf("%s is not a whole number", n)
		}
		return int(n.Int64), nil
	case *parse.PipeNode:
		return f.pipe(n, dot)
	}
	return nil, fmt.Errorf("%s cannot be used in a definition", n)
}

// fields follows a chain of field names from v.
func fields(v any, names []string) (any, error) {
	for _, name := range names {
		r, ok := v.(Runtime)
		if !ok {
			return nil, fmt.Errorf("can't evaluate field %s in type %T", name, v)
		}
		field := reflect.ValueOf(r).FieldByName(name)
		if !field.IsValid() {
			return nil, fmt.Errorf("can't evaluate field %s in type %T", name, v)
		}
		v = field.String()
	}
	return v, nil
}

// truthful reports whether v is not the zero value of its type.
func truthful(v any) bool { return v != nil && !reflect.ValueOf(v).IsZero() }

// templateFunctions returns the functions that a template may call.
func templateFunctions() map[string]func([]any) (any, error) {
	order := func(holds func(c int) bool) func([]any) (any, error) {
		return func(args []any) (any, error) {
			if len(args) != 2 {
				return nil, fmt.Errorf("%d arguments, want 2", len(args))
			}
			if _, ok := args[0].(bool); ok {
				return nil, errors.New("invalid type for comparison")
			}
			c, err := compared(args[0], args[1])
			return holds(c), err
		}
	}
	return map[string]func([]any) (any, error){
		"ne": func(args []any) (any, error) {
			if len(args) != 2 {
				return nil, fmt.Errorf("%d arguments, want 2", len(args))
			}
			c, err := compared(args[0], args[1])
			return c != 0, err
		},
		"lt": order(func(c int) bool { return c < 0 }), "le": order(func(c int) bool { return c <= 0 }),
		"gt": order(func(c int) bool { return c > 0 }), "ge": order(func(c int) bool { return c >= 0 }),
		"eq": func(args []any) (any, error) { // true if the first equals any of the others
			if len(args) < 2 {
				return nil, errors.New("missing argument for comparison")
			}
			for _, other := range args[1:] {
				if c, err := compared(args[0], other); err != nil || c == 0 {
					return c == 0, err
				}
			}
			return false, nil
		},
		"and": func(args []any) (any, error) { return firstOr(args, false) },
		"or":  func(args []any) (any, error) { return firstOr(args, true) },
		"not": func(args []any) (any, error) {
			if len(args) != 1 {
				return nil, fmt.Errorf("%d arguments, want 1", len(args))
			}
			return !truthful(args[0]), nil
		},
		"len": func(args []any) (any, error) {
			if s, ok := strings.Join(texts(args), ""), len(args) == 1; ok {
				return len(s), nil
			}
			return nil, fmt.Errorf("%d arguments, want 1", len(args))
		},
		"print": func(args []any) (any, error) { return fmt.Sprint(args...), nil },
		"printf": func(args []any) (any, error) {
			if len(args) == 0 {
				return nil, errors.New("no format")
			}
			return fmt.Sprintf(fmt.Sprint(args[0]), args[1:]...), nil
		},
	}
}

func texts(args []any) []string {
	var out []string
	for _, a := range args {
		out = append(out, fmt.Sprint(a))
	}
	return out
}

// firstOr returns the first argument whose truth is is, or the last argument if there is none.
func firstOr(args []any, is bool) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("no argument")
	}
	for _, a := range args {
		if truthful(a) == is {
			return a, nil
		}
	}
	return args[len(args)-1], nil
}

// compared orders two strings or two numbers. For two booleans it only says whether they are equal.
func compared(a, b any) (int, error) {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	case int:
		if y, ok := b.(int); ok {
			return x - y, nil
		}
	case bool:
		if y, ok := b.(bool); ok {
			if x == y {
				return 0, nil
			}
			return 1, nil
		}
	}
	return 0, errors.New("incompatible types for comparison")
}
