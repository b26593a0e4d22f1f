package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// schema compiles a schema of the repository.
func schema(t *testing.T, file string) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// parsed is a file of YAML as an editor sees it.
func parsed(t *testing.T, text string) any {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func contents(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestShippedFiles: each file that ships names its schema for editors, the schema is there, and the file follows it.
func TestShippedFiles(t *testing.T) {
	const root = "../.."
	files, err := filepath.Glob(root + "/vendors/*/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	files = append(files, root+"/docs/config.yaml", root+"/packaging/packages/config.yaml", chartDir+"/values.yaml")
	for _, file := range files {
		text := contents(t, file)
		m := regexp.MustCompile(`^# yaml-language-server: \$schema=(\S+)\n`).FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s names no schema in its first line", file)
			continue
		}
		at := filepath.Join(filepath.Dir(file), m[1])
		if installed, ok := strings.CutPrefix(m[1], "/usr/share/doc/acceld/"); ok {
			at = filepath.Join(root, "docs", installed)
		}
		v := parsed(t, text)
		if v == nil {
			continue // comments only
		}
		if err := schema(t, at).Validate(v); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestExamples: the policies of the documentation follow their schema.
func TestExamples(t *testing.T) {
	s, found := schema(t, "../../docs/schemas/policy.json"), 0
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, m := range regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)```").FindAllStringSubmatch(contents(t, page), -1) {
			for _, document := range strings.Split(m[1], "\n---\n") {
				if !strings.Contains(document, "kind: AcceleratorPolicy\n") {
					continue
				}
				found++
				if err := s.Validate(parsed(t, document)); err != nil {
					t.Errorf("%s: %v\n%s", page, err, document)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no policies were found")
	}
}

// TestRefusedBySchemas: mistakes that the schemas refuse, so that editors and helm install do before an agent does.
func TestRefusedBySchemas(t *testing.T) {
	for _, c := range []struct{ schema, text string }{
		{"config", "logLvl: debug"},
		{"config", "kinds: {nvidia-gpu: {driver: {version: 550.90}}}"},
		{"config", "resync: 5"},
		{"config", "resync: 5min"},
		{"config", "runtime: {edit: drop-in}"},
		{"config", "kinds: {a-b: {driver: {source: []}}}"},
		{"config", "prebuilt: [{type: regsitry}]"},
		{"controller", "polices: true"},
		{"definition", "kind: a-b\nresource: a.b/c\nmatch: [{vendor: 1234}]\ndriver: {binds: x, modules: [{name: x}]}"},
		{"policy", "apiVersion: acceld.dev/v1alpha1\nkind: AcceleratorPolicy\nmetadata: {name: x}\nspec: {kind: {}}"},
	} {
		if schema(t, "../../docs/schemas/"+c.schema+".json").Validate(parsed(t, c.text)) == nil {
			t.Errorf("%s takes %q", c.schema, c.text)
		}
	}
	for _, text := range []string{
		"{agent: {config: {logLvl: debug}}}", "{agent: {config: {kinds: {nvidia-gpu: {driver: {version: 550.90}}}}}}",
		"{controller: {config: {packing: pack, pakcing: x}}}",
	} {
		if _, err := render(t, "acceld-system", text); err == nil || !strings.Contains(err.Error(), "config") {
			t.Errorf("helm renders %s: %v", text, err)
		}
	}
	for _, text := range []string{
		"{agent: {config: {logLevel: debug, kubernetes: {policies: off}, policies: {definitions: off}}}}",
	} {
		if _, err := render(t, "acceld-system", text); err != nil {
			t.Errorf("helm refuses %s: %v", text, err)
		}
	}
}
