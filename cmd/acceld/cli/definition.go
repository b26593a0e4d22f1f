package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/vendors"
)

func definitionCommand(c *common) *cobra.Command {
	return group(&cobra.Command{Use: "definition", Short: "Show the definitions of kinds, and check your own"},
		definitionListCommand(c), definitionShowCommand(c), definitionValidateCommand(c))
}

// listed is one row of `acceld definition list`.
type listed struct {
	Kind     string `json:"kind"`
	Title    string `json:"title,omitempty"`
	Resource string `json:"resource"`
	// Enabled is false for a kind that its definition or the configuration disables.
	Enabled bool `json:"enabled"`
	// Devices is how many PCI functions of this host the definition recognises.
	Devices int `json:"devices"`
}

func definitionListCommand(c *common) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use: "list", Short: "List the kinds that have a definition", Args: noArgs,
		RunE: c.opened(func(p *parts, _ []string) error {
			all, problem := p.everyDefinition()
			if problem != nil {
				return failed(problem)
			}
			facts := p.facts()
			kinds, rows := []listed{}, [][]string{{"KIND", "RESOURCE", "ENABLED", "DEVICES", "TITLE"}}
			for _, kind := range sorted(all) {
				def := all[kind]
				k := listed{kind, def.Title, def.Offered(), p.Kinds[kind] != nil, len(p.Accelerators(def, facts))}
				kinds, rows = append(kinds, k), append(rows, []string{
					kind, k.Resource, strconv.FormatBool(k.Enabled), strconv.Itoa(k.Devices), plain(k.Title),
				})
			}
			return format.print(p.out, kinds, func(s *tableWriter) { s.table(rows) })
		}),
	}
	format.flag(cmd, "text")
	return cmd
}

// everyDefinition also returns the definitions of disabled kinds. It reports what cannot be used.
func (p *parts) everyDefinition() (map[string]*accel.Definition, *accel.Problem) {
	p.printSkipped()
	all, _, problem := p.Definitions()
	if problem != nil {
		return nil, problem
	}
	maps.Copy(all, p.Kinds) // with the configuration's overrides
	return all, nil
}

// printSkipped reports the definitions that cannot be used.
func (p *parts) printSkipped() {
	for _, s := range p.Skipped {
		fmt.Fprintln(p.errs, "acceld: skipped a definition:", s)
	}
}

func definitionShowCommand(c *common) *cobra.Command {
	var format outputFormat
	var expand bool
	cmd := &cobra.Command{
		Use: "show [KIND...]", Short: "Print the definitions in force",
		Long: `show prints the definitions of the named kinds, or all definitions in force, with the configuration's overrides.
With --expand it fills in the templates with the facts of the host below --host-root, as the agent does.`,
		RunE: c.opened(func(p *parts, kinds []string) error {
			all, problem := p.everyDefinition()
			if problem != nil {
				return failed(problem)
			}
			if len(kinds) == 0 {
				kinds = sorted(p.Kinds)
			}
			p.Kinds = all // a disabled kind can be shown too
			defs, err := p.chosen(kinds)
			if err != nil {
				return err
			}
			if expand {
				facts := p.facts()
				for i := range defs {
					if defs[i], problem = template.Expand(defs[i], facts); problem != nil {
						return failed(problem)
					}
				}
			}
			return writeDefinitions(p.out, defs, format.json())
		}),
	}
	format.flag(cmd, "yaml")
	cmd.Flags().BoolVar(&expand, "expand", false, "fill in the templates with the facts of this host")
	return cmd
}

// writeDefinitions prints one document for each definition: YAML with "---" between them, or JSON, one after another.
func writeDefinitions(out io.Writer, defs []*accel.Definition, asJSON bool) error {
	if asJSON {
		for _, def := range defs {
			if err := writeJSON(out, def); err != nil {
				return err
			}
		}
		return nil
	}
	e := yaml.NewEncoder(out)
	e.SetIndent(2)
	for _, def := range defs {
		b, err := json.Marshal(def)
		var n yaml.Node
		if err == nil {
			err = yaml.Unmarshal(b, &n) // JSON is YAML; this way the fields keep their order
		}
		if err == nil {
			blocks(&n)
			err = e.Encode(&n)
		}
		if err != nil {
			return exit{exitFailed, err}
		}
	}
	return e.Close()
}

// blocks gives a document that came from JSON the YAML style that people write. The encoder adds quotes where needed.
func blocks(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blocks(c)
	}
}

func definitionValidateCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE...", Short: "Check definition files before you use them",
		Long: `validate reads definition files as the agent does and reports every error in them, one per line: file, line,
field, what is wrong. It fills in the templates with the facts of the host below --host-root, and looks up the metrics
and the other kinds that a file names. FILE may be "-" for standard input. Nothing is changed.`,
		Args: takes(1, many, "name the files"),
		RunE: c.opened(func(p *parts, files []string) error {
			v := validation{
				out: p.out, facts: p.facts(), known: maps.Clone(p.Kinds),
				from: map[string]string{}, text: map[string][]byte{},
			}
			for _, file := range files {
				data, err := readNamed(p.in, file)
				if err != nil {
					v.say(file, vendors.Fault{Message: err.Error()})
					continue
				}
				v.file(file, data)
			}
			v.together()
			if v.faults > 0 {
				return exit{exitFailed, fmt.Errorf("%s in %s", count(v.faults, "error"), count(len(files), "file"))}
			}
			for _, kind := range sorted(v.from) {
				unchecked := ""
				if v.known[kind].Check == nil {
					unchecked = "; it has no check: its devices are offered unchecked"
				}
				fmt.Fprintf(p.out, "%s: %s is valid%s\n", v.from[kind], kind, unchecked)
			}
			return nil
		}),
	}
}

// readNamed reads a file of this process's own file system, or standard input.
func readNamed(in io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(in)
	}
	self, err := host.New("/")
	if err != nil {
		return nil, err
	}
	name, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	return self.ReadFile(name)
}

// validation checks files together.
type validation struct {
	out    io.Writer
	facts  accel.Facts
	known  map[string]*accel.Definition // definitions in force, and those of the files
	valid  []string                     // what is said of files that are not definitions
	from   map[string]string            // the file of each kind
	text   map[string][]byte            // of each file
	faults int
}

// say prints faults of a file, with their lines and in the order of the lines.
func (v *validation) say(file string, faults ...vendors.Fault) {
	for _, f := range vendors.Locate(v.text[file], faults) {
		v.faults++
		where := file
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d", file, f.Line)
		}
		fmt.Fprintf(v.out, "%s: %s\n", where, plain(f.String()))
	}
}

// file checks one file with a definition by itself.
func (v *validation) file(file string, data []byte) {
	v.text[file] = data
	def, faults := vendors.Read(data)
	if def != nil {
		faults = append(faults, unknownMetrics(def)...)
		if len(faults) == 0 {
			faults = v.ontoHost(def)
		}
	}
	v.say(file, faults...)
	if def == nil || len(faults) > 0 {
		return
	}
	if other := v.from[def.Kind]; other != "" {
		v.say(file, vendors.Fault{Field: "kind", Message: fmt.Sprintf("%q is also defined by %q", def.Kind, other)})
		return
	}
	v.from[def.Kind], v.known[def.Kind] = file, def
}

// unknownMetrics reports the metrics that the exporter does not know.
func unknownMetrics(def *accel.Definition) []vendors.Fault {
	var faults []vendors.Fault
	names := exporter.MetricNames()
	for i, m := range def.Metrics {
		if !slices.Contains(names, m.Name) {
			faults = append(faults, vendors.Fault{
				Field:   fmt.Sprintf("metrics[%d].name", i),
				Message: fmt.Sprintf("%q is not in docs/metrics.md%s", m.Name, accel.DidYouMean(m.Name, names)),
			})
		}
	}
	return faults
}

// ontoHost returns the faults of a definition after its templates are filled on this host.
func (v *validation) ontoHost(def *accel.Definition) []vendors.Fault {
	facts := v.facts
	facts.Cluster = accel.Cluster{Version: "1.37"} // from no host; any version will do
	expanded, problem := template.Expand(def, facts)
	if problem != nil {
		return []vendors.Fault{{Message: problem.Message}}
	}
	return vendors.Validate(expanded)
}

// together checks what depends on all definitions.
func (v *validation) together() {
	kinds := sorted(v.from)
	for _, kind := range kinds {
		for i, before := range v.known[kind].After {
			if v.known[before] == nil {
				v.say(v.from[kind], vendors.Fault{
					Field:   fmt.Sprintf("after[%d]", i),
					Message: fmt.Sprintf("no definition in force has kind %q", before),
				})
			}
		}
	}
	if _, cycle := accel.InOrder(v.known); cycle != "" && len(kinds) > 0 {
		v.say(v.from[kinds[0]], vendors.Fault{Field: "after", Message: "these kinds wait for each other: " + cycle})
	}
}
