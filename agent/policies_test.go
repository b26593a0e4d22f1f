package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

func TestPolicies(t *testing.T) {
	no := false
	p := Policies{
		Labels: map[string]string{"pool": "a", "noise": "1"},
		All: []accel.Policy{
			{Name: "fleet", Spec: accel.PolicySpec{
				NodeSelector: map[string]string{"pool": "a"}, Upgrade: &accel.Rollout{},
				Kinds: map[string]accel.KindConfig{
					"k-x": {Driver: accel.KindDriverOverride{Version: "2"}},
					"k-y": {Enabled: &no}, "k-none": {},
				},
			}},
			{
				Name: "bad",
				Spec: accel.PolicySpec{Kinds: map[string]accel.KindConfig{
					"k-z": {Driver: accel.KindDriverOverride{Parameters: map[string]map[string]string{"q": {}}}},
				}},
			},
		},
	}
	defs := map[string]*accel.Definition{"k-x": {Kind: "k-x"}, "k-y": {Kind: "k-y"}, "k-z": {Kind: "k-z"}}
	got, problems := p.Apply(defs, accel.PolicyTrustData)
	if got["k-x"].Driver.Version != "2" || *got["k-y"].Enabled || got["k-z"] != defs["k-z"] ||
		defs["k-x"].Driver.Version != "" {
		t.Errorf("%+v", got)
	}
	if len(problems) != 1 || problems[0].Reason != accel.PolicyInvalid {
		t.Errorf("%v", problems)
	}
	if o := p.Order(got); o["k-x"].Driver.Upgrade.By != "fleet" || o["k-z"].Driver.Upgrade.By != "" ||
		o["k-x"].Driver.Upgrade.Digest != p.All[0].DriverDigest("k-x") {
		t.Errorf("%+v", o)
	}
	odd := Policies{All: []accel.Policy{{Name: "odd", Spec: accel.PolicySpec{
		Upgrade: &accel.Rollout{}, Kinds: map[string]accel.KindConfig{
			"k-z": {Driver: accel.KindDriverOverride{Parameters: map[string]map[string]string{"q": {}}}},
		},
	}}}}
	if u := odd.Order(defs)["k-z"].Driver.Upgrade; u.By != "odd" || u.Digest != "" {
		t.Errorf("a policy that does not fit is said to be served: %+v", u)
	}
	q := p
	q.Labels = map[string]string{"pool": "a", "noise": "2"}
	if !p.Equal(q) {
		t.Error("a label that nobody asks for is news")
	}
	q.Labels = map[string]string{"pool": "b"}
	if p.Equal(q) {
		t.Error("a label that selects is no news")
	}
}

// TestPolicyTrust is what a host takes from policies, by its own configuration: what it refuses is said, one reason
// for each, and the rest is in force.
func TestPolicyTrust(t *testing.T) {
	const form = `{"kind": %q, "resource": "example.com/npu", "match": [{"vendor": "f00d", "device": "0001"}],
		"driver": {"binds": "npu", "modules": [{"name": "npu"}]}%s}`
	definition := func(kind, more string) string {
		text := strings.Replace(form, "%q", `"`+kind+`"`, 1)
		return strings.Replace(text, "%s", more, 1)
	}
	stepped := definition("example-step",
		`, "steps": {"device-plugin": {"before": [{"name": "x", "run": {"argv": ["sh"]}}]}}`)
	sum := sha256.Sum256([]byte(stepped))
	kept := Policies{All: []accel.Policy{{
		Name: "fleet",
		Spec: accel.PolicySpec{
			Definitions: []json.RawMessage{
				[]byte(definition("example-plain", "")),
				[]byte(definition("example-probe", `, "probe": {"argv": ["/tmp/x"]}`)),
			},
			DefinitionsFrom: []accel.DefinitionSource{{
				ConfigMap: "definitions", Key: "step.yaml",
				Digest: "sha256:" + hex.EncodeToString(sum[:]),
			}, {ConfigMap: "loose"}, {ConfigMap: "changed", Key: "x.yaml", Digest: "sha256:0"}},
			Kinds: map[string]accel.KindConfig{
				"qemu-edu": {Driver: accel.KindDriverOverride{Version: "2.0.0"}},
				"amd-gpu": {Driver: accel.KindDriverOverride{
					Version: "2.0.0", Sources: []accel.Source{{Type: accel.SourceBuild, Path: "/tmp/x"}},
				}},
			},
		},
		Named: []accel.NamedDefinition{
			{Name: "definitions/step.yaml", Text: stepped},
			{Name: "loose/probe.yaml", Text: definition("example-loose", `, "probe": {"argv": ["/tmp/x"]}`)},
			{Name: "loose/plain.yaml", Text: definition("example-free", "")},
			{Name: "changed/x.yaml", Text: definition("example-changed", "")},
			{Name: "unnamed/x.yaml", Text: definition("example-unnamed", "")},
		},
	}}}
	const (
		step    = `the policy "fleet": definition "definitions/step.yaml": this host`
		loose   = `the policy "fleet": definition "loose/probe.yaml": this host`
		free    = `the policy "fleet": definition "loose/plain.yaml": this host`
		digest  = `the policy "fleet": definition "loose/probe.yaml": without a digest in definitionsFrom this host`
		changed = `the policy "fleet": definition "changed/x.yaml": it has the digest`
		probe   = `the policy "fleet": definitions[1]: this host`
		plain   = `the policy "fleet": definitions[0]: this host`
		source  = `the policy "fleet": kinds.amd-gpu: this host`
	)
	for _, c := range []struct {
		config  string
		kinds   []string
		refused []string
	}{
		{"", []string{"example-free", "example-plain"}, []string{step, loose, changed, probe, source}},
		{
			"policies: {definitions: data}",
			[]string{"example-free", "example-plain"},
			[]string{step, loose, changed, probe, source},
		},
		{"policies: {definitions: off}", nil, []string{step, loose, free, changed, plain, probe, source}},
		{
			"policies: {definitions: all}",
			[]string{"example-free", "example-plain", "example-probe", "example-step"},
			[]string{digest, changed},
		},
	} {
		root := t.TempDir()
		if problem := kept.Keep(opened(t, root, "").Host, "/var/lib/acceld"); problem != nil {
			t.Fatal(problem)
		}
		s := opened(t, root, "kubernetes: {kubeconfig: /k}\n"+c.config)
		var kinds, refused []string
		for _, kind := range slices.Sorted(maps.Keys(s.Kinds)) {
			if strings.HasPrefix(kind, "example-") {
				kinds = append(kinds, kind)
			}
		}
		for _, p := range s.Unfit {
			for _, end := range []string{"this host", "the digest"} {
				if before, _, ok := strings.Cut(p.Message, end); ok && p.Reason == accel.PolicyRefused {
					refused = append(refused, before+end)
				}
			}
		}
		if diff := cmp.Diff(c.kinds, kinds); diff != "" {
			t.Errorf("%q: kinds in force (-want +got):\n%s", c.config, diff)
		}
		if diff := cmp.Diff(c.refused, refused); diff != "" || len(s.Unfit) != len(refused) {
			t.Errorf("%q: refused (-want +got):\n%s\nof %v", c.config, diff, s.Unfit)
		}
		if sources := s.Kinds["amd-gpu"].Driver.Version == "2.0.0"; sources == slices.Contains(c.refused, source) {
			t.Errorf("%q: an override with a source is in force: %v", c.config, sources)
		}
		if d := s.Kinds["example-free"]; d != nil && !d.Confined {
			t.Errorf("%q: what the policy does not pin is not confined", c.config)
		}
		if d := s.Kinds["example-plain"]; d != nil && d.Confined == strings.HasSuffix(c.config, "all}") {
			t.Errorf("%q: confined %v", c.config, d.Confined)
		}
		if s.Kinds["qemu-edu"].Driver.Version != "2.0.0" {
			t.Errorf("%q: the rest of the policy is not in force", c.config)
		}
	}
	if _, problem := ParseConfig("c", []byte("policies: {definitions: some}")); problem == nil ||
		!strings.Contains(problem.Message, `policies.definitions: "some" is not one of off, data, all`) {
		t.Errorf("%v", problem)
	}
}

// TestInCluster: the history of a kind is kept in the cluster if the policy that governs it says so.
func TestInCluster(t *testing.T) {
	kept := &accel.DeviceHistory{}
	kinds := func(names ...string) map[string]accel.KindConfig {
		all := map[string]accel.KindConfig{}
		for _, name := range names {
			all[name] = accel.KindConfig{}
		}
		return all
	}
	p := Policies{Labels: map[string]string{"pool": "a"}, All: []accel.Policy{
		{Name: "strong", Spec: accel.PolicySpec{Priority: 1, Kinds: kinds("k-x")}},
		{Name: "weak", Spec: accel.PolicySpec{Kinds: kinds("k-x", "k-z", "k-y"), History: kept}},
		{Name: "dry", Spec: accel.PolicySpec{Kinds: kinds("k-d"), History: kept, DryRun: true}},
		{Name: "other", Spec: accel.PolicySpec{
			Kinds: kinds("k-o"), History: kept, NodeSelector: map[string]string{"pool": "b"},
		}},
	}}
	if got := p.InCluster(); !slices.Equal(got, []string{"k-y", "k-z"}) {
		t.Errorf("%v", got)
	}
	if got := (Policies{}).InCluster(); got != nil {
		t.Errorf("%v", got)
	}
}
