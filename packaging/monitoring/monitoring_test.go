// Package monitoring checks rules, dashboard and monitors against the metrics that exist: an alert with an unknown
// metric or label would never fire. test/prometheus runs promtool and Prometheus on them.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/test/docs"
	"github.com/acceld/acceld/vendors"
)

// rules is a rules file.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert,omitempty"`
			Record      string            `json:"record,omitempty"`
			Expr        string            `json:"expr"`
			For         string            `json:"for,omitempty"`
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations,omitempty"`
		} `json:"rules"`
	} `json:"groups"`
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(name) == ".json" {
		err = json.Unmarshal(data, into)
	} else {
		err = yaml.UnmarshalStrict(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func alerts(t *testing.T) rules {
	t.Helper()
	var r rules
	read(t, "rules.yaml", &r)
	return r
}

// known returns the labels of every metric, by name: the agent's, the controller's, those that Prometheus creates and
// those that the rules record.
func known(t *testing.T) map[string][]string {
	out := map[string][]string{
		"up":                            nil,
		"process_resident_memory_bytes": nil,
		"process_cpu_seconds_total":     nil,
	}
	for _, s := range exporter.Table() {
		for _, m := range s.Metrics {
			out[m.Name] = m.Labels
		}
	}
	for _, m := range docs.ControllerMetrics() {
		if m.Type != "histogram" {
			out[m.Name] = m.Labels
			continue
		}
		out[m.Name+"_count"], out[m.Name+"_sum"], out[m.Name+"_bucket"] = m.Labels, m.Labels,
			append([]string{"le"}, m.Labels...)
	}
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				out[r.Record] = []string{"namespace", "pod"}
			}
		}
	}
	return out
}

// asked is a selector of an expression: a metric and the labels that it matches.
type asked struct {
	metric string
	labels []string
}

var (
	words    = regexp.MustCompile(`[A-Za-z_:][A-Za-z0-9_:]*`)
	quoted   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	matchers = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*)\s*(?:=~|!~|!=|=)`)
	ranges   = regexp.MustCompile(`\[[^\]]*\]`)
)

// selectors returns the selectors of an expression of PromQL and the labels that it groups and matches by.
func selectors(expr string) (all []asked, groupedBy []string) {
	expr = ranges.ReplaceAllString(quoted.ReplaceAllString(expr, `""`), "")
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		groupedBy = append(groupedBy, words.FindAllString(m[1], -1)...)
	}
	expr = grouping.ReplaceAllString(expr, " ")
	for at := 0; at < len(expr); {
		loc := words.FindStringIndex(expr[at:])
		if loc == nil {
			return all, groupedBy
		}
		word, rest := expr[at+loc[0]:at+loc[1]], expr[at+loc[1]:]
		before := at + loc[0]
		at += loc[1]
		if before > 0 && expr[before-1] >= '0' && expr[before-1] <= '9' {
			continue // the unit of a number
		}
		rest = strings.TrimLeft(rest, " \n")
		if strings.HasPrefix(rest, "(") || slices.Contains([]string{"and", "or", "unless", "bool", "offset"}, word) {
			continue // a function or an operator
		}
		a := asked{metric: word}
		if inner, found := strings.CutPrefix(rest, "{"); found {
			inner, _, _ = strings.Cut(inner, "}")
			for _, m := range matchers.FindAllStringSubmatch(inner, -1) {
				a.labels = append(a.labels, m[1])
			}
			at = strings.Index(expr[at:], "}") + at + 1
		}
		all = append(all, a)
	}
	return all, groupedBy
}

// TestSelectors checks the parser of expressions: one that misses selectors would find no errors.
func TestSelectors(t *testing.T) {
	for expr, want := range map[string]string{
		`up`:                                `[{up []}] []`,
		`a{x="1", y=~"b{c}"} == 0`:          `[{a [x y]}] []`,
		`sum by (x, y) (rate(a_total[5m]))`: `[{a_total []}] [x y]`,
		`a * on (i, j) group_left () b{k!="v"} and c > 1e3`:     `[{a []} {b [k]} {c []}] [i j]`,
		`time() - a < 600 or vector(0)`:                         `[{a []}] []`,
		`max_over_time(r:s:t{instance=~"$node"}[2h]) offset 5m`: `[{r:s:t [instance]}] []`,
	} {
		all, by := selectors(expr)
		if got := fmt.Sprint(all, by); got != want {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
	}
}

// judge returns what an expression uses that does not exist.
func judge(expr string, metrics map[string][]string) []string {
	// A scrape adds these labels (servicemonitor.yaml).
	added := []string{"instance", "job"}
	var wrong []string
	labels := slices.Clone(added)
	all, by := selectors(expr)
	if len(all) == 0 {
		wrong = append(wrong, "asks for nothing")
	}
	for _, a := range all {
		has, there := metrics[a.metric]
		if !there {
			wrong = append(wrong, "there is no metric "+a.metric)
		}
		for _, l := range a.labels {
			if !slices.Contains(has, l) && !slices.Contains(added, l) {
				wrong = append(wrong, a.metric+" has no label "+l)
			}
		}
		labels = append(labels, has...)
	}
	for _, l := range by {
		if !slices.Contains(labels, l) {
			wrong = append(wrong, "no metric has the label "+l)
		}
	}
	return wrong
}

// TestJudge: unknown metrics and labels are found.
func TestJudge(t *testing.T) {
	metrics := known(t)
	for expr, want := range map[string]int{
		`accelerator_up == 0`:                             0,
		`accelerator_upp == 0`:                            1,
		`acceld_policy_nodes{state="failed"} > 0`:         0,
		`acceld_policy_nodes{kind="x"} > 0`:               1,
		`acceld_extender_request_seconds`:                 1,
		`accelerator_health_state{stat="gone"}`:           1,
		`sum by (nowhere) (accelerator_up)`:               1,
		`vector(1)`:                                       1,
		`sum by (instance) (accelerator_up{vendor="x"})`:  0,
		`DCGM_FI_DEV_GPU_TEMP + accelerator_no_such_name`: 2,
	} {
		if wrong := judge(expr, metrics); len(wrong) != want {
			t.Errorf("%s: %q, want %d findings", expr, wrong, want)
		}
	}
}

// TestRules: each rule uses only metrics that exist and tells people what happened, and each alert has a test.
func TestRules(t *testing.T) {
	metrics := known(t)
	var tests struct {
		RuleFiles          []string         `json:"rule_files"`
		EvaluationInterval string           `json:"evaluation_interval"`
		Tests              []map[string]any `json:"tests"`
	}
	read(t, "rules_test.yaml", &tests)
	tested := fmt.Sprint(tests.Tests)
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	placeholder := regexp.MustCompile(`\$labels\.([a-z_]+)`)
	seen := map[string]bool{}
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			name := r.Alert + r.Record
			for _, wrong := range judge(r.Expr, metrics) {
				t.Errorf("%s: %s", name, wrong)
			}
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(tested) {
				t.Errorf("rules_test.yaml has nothing about %s", name)
			}
			if r.Alert == "" {
				continue
			}
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
				t.Errorf("%s: severity %q", name, r.Labels["severity"])
			}
			if !regexp.MustCompile(`(?m)^\| ` + r.Labels["severity"] + ` \|.*` + "`" + name + "`").Match(page) {
				t.Errorf("docs/monitoring.md does not list %s as %s", name, r.Labels["severity"])
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s does not say what happened and what to do", name)
			}
			labels := []string{"instance"}
			all, _ := selectors(r.Expr)
			for _, a := range all {
				labels = append(labels, metrics[a.metric]...)
			}
			for _, m := range placeholder.FindAllStringSubmatch(fmt.Sprint(r.Annotations), -1) {
				if !slices.Contains(labels, m[1]) {
					t.Errorf("%s: the text names the label %s, which there is not", name, m[1])
				}
			}
		}
	}
}

// panel is what the tests look at in a panel of the dashboard, or in a row with panels in it.
type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct{ Expr string }
	Panels                   []panel
}

// board returns the panels that are seen at once, and all of them.
func board(t *testing.T) (open, all []panel) {
	t.Helper()
	var file struct{ Panels []panel }
	read(t, "dashboard.json", &file)
	for _, p := range file.Panels {
		if p.Type != "row" {
			open = append(open, p)
		}
		all = append(append(all, p), p.Panels...)
	}
	return open, all
}

// TestQuestions: what is seen at once are twelve questions.
func TestQuestions(t *testing.T) {
	open, _ := board(t)
	if len(open) != 12 {
		t.Errorf("%d panels are seen at once", len(open))
	}
	for _, p := range open {
		if !regexp.MustCompile(`^(Who|Which|How) .*\?$`).MatchString(p.Title) {
			t.Errorf("%q is no question", p.Title)
		}
	}
}

// TestDashboard: each panel uses only metrics that exist, and each reading has a panel.
func TestDashboard(t *testing.T) {
	metrics := known(t)
	_, all := board(t)
	shown, places, ids := map[string]bool{}, map[string]bool{}, map[int]bool{}
	for _, p := range all {
		if ids[p.ID] {
			t.Errorf("%s has the number of another panel", p.Title)
		}
		ids[p.ID] = true
		place := fmt.Sprint(p.GridPos.X, " ", p.GridPos.Y)
		if places[place] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s lies over another panel or outside: %+v", p.Title, p.GridPos)
		}
		places[place] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
			for _, wrong := range judge(expr, metrics) {
				t.Errorf("%s: %s", p.Title, wrong)
			}
			all, _ := selectors(expr)
			for _, a := range all {
				shown[a.metric] = true
			}
		}
	}
	for _, name := range exporter.MetricNames() {
		if !shown[name] {
			t.Errorf("%s has no panel", name)
		}
	}
}

// TestFiles: the kustomization names existing files, the operator's object has the rules of the plain file, and the
// scraper's role has the possible paths.
func TestFiles(t *testing.T) {
	var k struct {
		APIVersion         string   `json:"apiVersion"`
		Kind               string   `json:"kind"`
		Resources          []string `json:"resources"`
		ConfigMapGenerator []struct {
			Name      string         `json:"name"`
			Namespace string         `json:"namespace"`
			Files     []string       `json:"files"`
			Options   map[string]any `json:"options"`
		} `json:"configMapGenerator"`
	}
	read(t, "kustomization.yaml", &k)
	files := slices.Clone(k.Resources)
	for _, g := range k.ConfigMapGenerator {
		files = append(files, g.Files...)
	}
	for _, name := range files {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	var object struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       rules          `json:"spec"`
	}
	read(t, "prometheusrule.yaml", &object)
	if fmt.Sprint(object.Spec) != fmt.Sprint(alerts(t)) {
		t.Error("prometheusrule.yaml has other rules than rules.yaml")
	}
	data, err := os.ReadFile("rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"/metrics"}
	for _, p := range vendors.MetricPages() {
		paths = append(paths, "/metrics/"+p.Name)
	}
	if want := "nonResourceURLs: [" + strings.Join(paths, ", ") + "]"; !strings.Contains(string(data), want) {
		t.Errorf("rbac.yaml has no %s", want)
	}
}

// TestPages: every row of a further page has an existing metric.
func TestPages(t *testing.T) {
	names := exporter.MetricNames()
	for _, p := range vendors.MetricPages() {
		for _, r := range p.Rows {
			for _, reading := range []string{r.Reading, r.Less} {
				if reading != "" && !slices.Contains(names, reading) {
					t.Errorf("%s: %s is read from %s, which there is not", p.Name, r.Name, reading)
				}
			}
		}
	}
}
