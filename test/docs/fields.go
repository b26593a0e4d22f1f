package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// vocabulary is package accel as its source says it.
type vocabulary struct {
	types  map[string]*ast.TypeSpec
	docs   map[string]string   // of types
	values map[string][]string // the constants of a type of text, in order
}

// readVocabulary parses the files of package accel below the root of the repository.
func readVocabulary(root string) (*vocabulary, error) {
	v := &vocabulary{types: map[string]*ast.TypeSpec{}, docs: map[string]string{}, values: map[string][]string{}}
	files, err := filepath.Glob(filepath.Join(root, "accel", "*.go"))
	if err == nil && len(files) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	for _, name := range files {
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				v.add(g)
			}
		}
	}
	return v, nil
}

func (v *vocabulary) add(g *ast.GenDecl) {
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			v.types[s.Name.Name] = s
			v.docs[s.Name.Name] = prose(g.Doc)
		case *ast.ValueSpec:
			t, ok := s.Type.(*ast.Ident)
			if !ok || g.Tok != token.CONST || len(s.Values) != 1 {
				continue
			}
			if l, ok := s.Values[0].(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil && text != "" {
					v.values[t.Name] = append(v.values[t.Name], "`"+text+"`")
				}
			}
		}
	}
}

// prose is a comment on one line, its links to code as code.
func prose(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	text := strings.Join(strings.Fields(c.Text()), " ")
	return regexp.MustCompile(`\[([A-Za-z.]+)\]`).ReplaceAllString(text, "`$1`")
}

// definitionFields renders docs/definition-fields.md: every field of a definition from its comment in package accel.
func definitionFields(root string) string {
	v, err := readVocabulary(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs: cannot read package accel:", err)
		return ""
	}
	var b strings.Builder
	b.WriteString(
		"# The fields of a definition\n\nGenerated from the comments of package accel; do not edit. How a definition is written and tried is told in\n" +
			"[definitions.md](definitions.md).\n\nWhat is marked \"template\" is filled with the facts of the host, see [Runtime](#runtime). In what is marked \"device\",\n" +
			"`{{.Address}}` stands for the PCI address of the device and `{{.Number}}` for its number.\n" +
			"What is marked \"privileged\" a host takes from its own files only, unless it\n[trusts policies](trust.md#what-a-policy-may-bring). What is marked \"privileged if\" depends on the text.\n")
	todo, done := []string{"Definition"}, map[string]bool{"Definition": true}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		for _, next := range v.section(&b, name) {
			if !done[next] {
				done[next] = true
				todo = append(todo, next)
			}
		}
	}
	v.section(&b, "Runtime")
	return b.String()
}

// section renders one struct and returns the structs that its fields have.
func (v *vocabulary) section(b *strings.Builder, name string) (next []string) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n| field | type | meaning |\n|---|---|---|\n", name,
		strings.Join(broken(v.docs[name], 118), "\n"))
	for _, f := range v.types[name].Type.(*ast.StructType).Fields.List {
		tag := reflect.StructTag("")
		if f.Tag != nil {
			tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		}
		field, _, _ := strings.Cut(tag.Get("json"), ",")
		if field == "" { // the variables of templates
			field = "." + f.Names[0].Name
		}
		meaning := prose(f.Doc)
		if line := prose(f.Comment); line != "" {
			meaning = strings.TrimSpace(meaning + " " + line)
		}
		if json := tag.Get("json"); json != "" && !strings.Contains(json, "omit") {
			meaning = "**Required.** " + meaning
		}
		if kind := tag.Get("template"); kind != "" {
			meaning += map[string]string{
				"runtime": " *Template.*", "device": " *Device.*",
				"partition": " *Partition.*",
			}[kind]
		}
		if tag.Get("privileged") != "" {
			meaning += map[string]string{
				"": " *Privileged.*", "own": " *Privileged if absolute and without `{{.Address}}`.*",
				"numbered": " *Privileged if without `{{.Number}}`.*", "dev": " *Privileged if not below `/dev`.*",
			}[tag.Get("unless")]
		}
		text, used := v.typeText(f.Type)
		next = append(next, used...)
		if values := v.values[textType(f.Type)]; len(values) > 0 {
			meaning = strings.TrimSpace(meaning + " One of " + strings.Join(values, ", ") + ".")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", field, text, cell(strings.TrimSpace(meaning)))
	}
	return next
}

// textType is the name of a type, also of a map's key.
func textType(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.MapType:
		return textType(t.Key)
	}
	return ""
}

// typeText says a type in the words of YAML, and which structs it has.
func (v *vocabulary) typeText(e ast.Expr) (text string, used []string) {
	switch t := e.(type) {
	case *ast.StarExpr:
		return v.typeText(t.X)
	case *ast.ArrayType:
		text, used = v.typeText(t.Elt)
		return "list of " + text, used
	case *ast.MapType:
		text, used = v.typeText(t.Value)
		return "map of " + text, used
	case *ast.Ident:
		if s, ok := v.types[t.Name]; ok {
			if _, ok := s.Type.(*ast.StructType); ok {
				return "[" + t.Name + "](#" + strings.ToLower(t.Name) + ")", []string{t.Name}
			}
			return "text", nil
		}
		words := map[string]string{"string": "text", "bool": "true or false", "float64": "number"}
		if w, ok := words[t.Name]; ok {
			return w, nil
		}
		return "whole number", nil
	}
	return "?", nil
}
