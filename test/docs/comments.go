package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// module is the path of the module, which every package of ours begins with.
const module = "github.com/acceld/acceld/"

// comments are what the source of packages says of their types, read when it is asked for.
type comments struct {
	root     string
	packages map[string]*commented
}

// commented is one package: the comments of types and of fields, by "Type" and "Type.Field", and the constants of types
// of text.
type commented struct {
	texts  map[string]string
	values map[string][]string
}

func newComments(root string) *comments {
	return &comments{root, map[string]*commented{}}
}

// of returns what is said of the package of a type; nothing for packages of others.
func (c *comments) of(path string) *commented {
	if d := c.packages[path]; d != nil {
		return d
	}
	d := &commented{map[string]string{}, map[string][]string{}}
	c.packages[path] = d
	dir, ours := strings.CutPrefix(path, module)
	if !ours {
		return d
	}
	files, err := filepath.Glob(filepath.Join(c.root, dir, "*.go"))
	if err != nil {
		return d
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, data, parser.ParseComments)
		if err != nil {
			continue
		}
		for _, decl := range f.Decls {
			if g, ok := decl.(*ast.GenDecl); ok {
				d.add(g)
			}
		}
	}
	return d
}

func (d *commented) add(g *ast.GenDecl) {
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			doc := s.Doc
			if doc == nil {
				doc = g.Doc
			}
			d.texts[s.Name.Name] = sentence(doc)
			if t, ok := s.Type.(*ast.StructType); ok {
				d.fields(s.Name.Name, t)
			}
		case *ast.ValueSpec:
			t, ok := s.Type.(*ast.Ident)
			if !ok || g.Tok != token.CONST || len(s.Values) != 1 {
				continue
			}
			if l, ok := s.Values[0].(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil && text != "" {
					d.values[t.Name] = append(d.values[t.Name], text)
				}
			}
		}
	}
}

// fields takes the comments of fields. A comment above a line of several names, or above the first of several fields
// that it names, is that of all of them.
func (d *commented) fields(owner string, t *ast.StructType) {
	above := ""
	for _, f := range t.Fields.List {
		text := strings.TrimSpace(sentence(f.Doc) + " " + sentence(f.Comment))
		if f.Doc != nil {
			above = text
		}
		for _, n := range f.Names {
			own := text
			if own == "" && mentions(above, n.Name) {
				own = above
			}
			d.texts[owner+"."+n.Name] = own
		}
	}
}

// mentions reports whether a comment names a field, among others.
func mentions(text, field string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(field) + `\b`).MatchString(text)
}

// sentence is a comment on one line, without the brackets of links to code.
func sentence(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	text := strings.Join(strings.Fields(c.Text()), " ")
	return regexp.MustCompile(`\[([A-Za-z.]+)\]`).ReplaceAllString(text, "$1")
}

// field describes a field of a struct by its own comment, or else by that of its type.
func (c *comments) field(owner reflect.Type, f reflect.StructField) string {
	if text := c.of(owner.PkgPath()).texts[owner.Name()+"."+f.Name]; text != "" {
		return text
	}
	t := f.Type
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return c.of(t.PkgPath()).texts[t.Name()]
}
