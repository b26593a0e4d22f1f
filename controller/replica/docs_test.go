package replica

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/controller/fit"
)

const root = "../../"

// block returns a fenced block of docs/scheduling.md.
func block(t *testing.T, info string) string {
	t.Helper()
	page, err := os.ReadFile(root + "docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "```"+info+"\n")
	text, _, end := strings.Cut(text, "\n```\n")
	if !ok || !end {
		t.Fatalf("docs/scheduling.md has no block %q", info)
	}
	return text + "\n"
}

// TestReference checks the configuration in the page against the defaults: every option is there, with its default.
func TestReference(t *testing.T) {
	text := block(t, "yaml controller")
	written, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	short, err := ParseConfig([]byte("tls: {secret: acceld-controller-tls}\n" +
		"resources: {prefix: gpu.intel.com/, cards: [xe, i915], tiles: tiles, nodeWide: [\"*_monitoring\"]}\ncardNodes: 200\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(short, written, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("defaults (-code +page):\n%s", diff)
	}
	all, err := yaml.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if key, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.Contains(text, key+":") {
			t.Errorf("the page lacks %q", key)
		}
	}
}

// TestInventoryExample reads the page's annotation.
func TestInventoryExample(t *testing.T) {
	cards, err := fit.ParseInventory(block(t, "json"))
	if err != nil || len(cards) != 2 || !cards[1].Off {
		t.Errorf("%+v, %v", cards, err)
	}
}

// TestManifest parses the manifest's configuration and compares the paths in it with the Deployment's mounts.
func TestManifest(t *testing.T) {
	data, err := os.ReadFile(root + "packaging/manifests/controller/configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		t.Fatal(err)
	}
	c, err := ParseConfig([]byte(m.Data["controller.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(c.Listen, ":9443") || !strings.HasSuffix(c.Watched, ":9482") ||
		c.TLS.Secret != "acceld-controller-tls" {
		t.Errorf("%+v", c)
	}
}

// schedulerConfiguration is the part of KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1 that the page
// uses. This program does not import its Go types.
type schedulerConfiguration struct {
	metav1.TypeMeta
	ClientConnection         struct{ Kubeconfig string }
	PercentageOfNodesToScore int
	Extenders                []struct {
		URLPrefix, FilterVerb, PrioritizeVerb, PreemptVerb, BindVerb string
		Weight                                                       int
		EnableHTTPS, NodeCacheCapable, Ignorable                     bool
		HTTPTimeout                                                  metav1.Duration
		ManagedResources                                             []struct {
			Name               string
			IgnoredByScheduler bool
		}
		TLSConfig struct{ ServerName, CAFile, CertFile, KeyFile string }
	}
}

// TestSchedulerConfiguration checks the page's configuration of the scheduler against what is served.
func TestSchedulerConfiguration(t *testing.T) {
	var c schedulerConfiguration
	if err := yaml.UnmarshalStrict([]byte(block(t, "yaml scheduler")), &c); err != nil {
		t.Fatal(err)
	}
	if c.APIVersion != "kubescheduler.config.k8s.io/v1" || c.Kind != "KubeSchedulerConfiguration" ||
		len(c.Extenders) != 1 {
		t.Fatalf("%+v", c)
	}
	e := c.Extenders[0]
	u, err := url.Parse(e.URLPrefix)
	if err != nil || u.Scheme != "https" || u.Path != "/scheduler" || u.Port() != "9443" {
		t.Errorf("URL %q: %v", e.URLPrefix, err)
	}
	if e.FilterVerb != "filter" || e.PrioritizeVerb != "prioritize" || e.PreemptVerb != "preempt" ||
		e.BindVerb != "bind" {
		t.Errorf("verbs %+v", e)
	}
	if e.Ignorable || !e.NodeCacheCapable || !e.EnableHTTPS || e.TLSConfig.CAFile == "" {
		t.Errorf("%+v", e)
	}
	config, err := ParseConfig([]byte(block(t, "yaml controller")))
	if err != nil {
		t.Fatal(err)
	}
	var managed []string
	for i := len(e.ManagedResources) - 1; i >= 0; i-- {
		managed = append(managed, strings.TrimPrefix(e.ManagedResources[i].Name, config.Resources.Prefix))
	}
	if diff := cmp.Diff(config.Resources.Cards, managed); diff != "" {
		t.Errorf("managed resources:\n%s", diff)
	}
}
