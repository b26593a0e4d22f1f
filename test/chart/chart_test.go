package chart

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../../packaging/chart"
	manifests = "../../packaging/manifests"
)

// object is an object of the API as JSON has it.
type object = map[string]any

// values reads values as a user writes them.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// render renders the chart as helm install does, but for the API server.
func render(t *testing.T, namespace, text string) (map[string]object, error) {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *kubernetes()
	all, err := chartutil.ToRenderValues(c, values(t, text), chartutil.ReleaseOptions{
		Name:      "acceld",
		Namespace: namespace, Revision: 1, IsInstall: true,
	}, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	objects := map[string]object{}
	for name, rendered := range files {
		if !strings.HasSuffix(name, ".txt") {
			read(t, name, []byte(rendered), objects)
		}
	}
	return objects, nil
}

// rendered must succeed.
func rendered(t *testing.T, namespace, text string) map[string]object {
	t.Helper()
	objects, err := render(t, namespace, text)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// read adds the objects of a file of YAML, by kind and name.
func read(t *testing.T, name string, text []byte, into map[string]object) {
	t.Helper()
	for _, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---\n")) {
		var o object
		if err := yaml.UnmarshalStrict(document, &o); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, document)
		}
		if len(o) == 0 {
			continue
		}
		meta, _ := o["metadata"].(object)
		key := fmt.Sprint(o["kind"], " ", cmp.Or(fmt.Sprint(meta["namespace"]), "-"), "/", meta["name"])
		if into[key] != nil {
			t.Errorf("%s: %s is there twice", name, key)
		}
		into[key] = o
	}
}

// plain reads the manifests of directories, with the images that their kustomizations name.
func plain(t *testing.T, dirs ...string) map[string]object {
	t.Helper()
	objects := map[string]object{}
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(manifests, dir, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var k struct {
			Resources []string
			Images    []struct{ Name, NewName, NewTag string }

			ConfigMapGenerator []struct {
				Name, Namespace string
				Files           []string
				Options         struct{ Labels map[string]any }
			}
		}
		if err := yaml.Unmarshal(data, &k); err != nil {
			t.Fatal(err)
		}
		for _, g := range k.ConfigMapGenerator {
			content := object{}
			for _, file := range g.Files {
				data, err := os.ReadFile(filepath.Join(manifests, dir, file))
				if err != nil {
					t.Fatal(err)
				}
				content[file] = string(data)
			}
			objects["ConfigMap "+g.Namespace+"/"+g.Name] = object{
				"apiVersion": "v1", "kind": "ConfigMap", "data": content,
				"metadata": object{"name": g.Name, "namespace": g.Namespace, "labels": g.Options.Labels},
			}
		}
		for _, resource := range k.Resources {
			data, err := os.ReadFile(filepath.Join(manifests, dir, resource))
			if err != nil {
				t.Fatal(err)
			}
			own := map[string]object{}
			read(t, resource, data, own)
			for key, o := range own {
				for _, c := range containers(o) {
					name, _, _ := strings.Cut(fmt.Sprint(c["image"]), ":")
					for _, image := range k.Images {
						if image.Name == name {
							c["image"] = image.NewName + ":" + image.NewTag
						}
					}
				}
				objects[key] = o
			}
		}
	}
	return objects
}

// containers returns those of the pods of an object, init containers first.
func containers(o object) []object {
	var out []object
	spec, _ := at(o, "spec", "template", "spec").(object)
	for _, list := range []string{"initContainers", "containers"} {
		all, _ := spec[list].([]any)
		for _, c := range all {
			out = append(out, c.(object))
		}
	}
	return out
}

// at follows keys; nil when there is nothing.
func at(o any, keys ...any) any {
	for _, key := range keys {
		switch k := key.(type) {
		case string:
			m, _ := o.(object)
			o = m[k]
		case int:
			l, _ := o.([]any)
			if k >= len(l) {
				return nil
			}
			o = l[k]
		}
	}
	return o
}

// settle drops what a chart alone has: the annotations of hooks, the sum of the configuration, a pull policy that is
// the API's own default; and parses the configuration.
func settle(t *testing.T, objects map[string]object) {
	t.Helper()
	for _, o := range objects {
		for _, path := range [][]any{{"metadata"}, {"spec", "template", "metadata"}} {
			meta, _ := at(o, path...).(object)
			annotations, _ := meta["annotations"].(object)
			maps.DeleteFunc(annotations, func(key string, _ any) bool {
				return strings.HasPrefix(key, "helm.sh/") || key == "acceld.dev/config"
			})
			if len(annotations) == 0 {
				delete(meta, "annotations")
			}
		}
		for _, c := range containers(o) {
			if c["imagePullPolicy"] == "IfNotPresent" {
				delete(c, "imagePullPolicy")
			}
		}
		if text, ok := at(o, "data", "controller.yaml").(string); ok {
			var config object
			if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
				t.Fatal(err)
			}
			o["data"].(object)["controller.yaml"] = config
		}
	}
}

// The chart is the manifests: with its own values those that everybody applies, with all of it switched on all of them.
func TestSameAsManifests(t *testing.T) {
	for _, c := range []struct {
		values string
		dirs   []string
	}{
		{"", []string{".", "controller", "remove"}},
		{"{dra: true, evict: true}", []string{".", "controller", "dra", "evict", "remove"}},
		{"{dra: true, binding: true}", []string{".", "binding", "controller", "dra", "remove"}},
		{"{topology: true}", []string{".", "controller", "topology", "remove"}},
		{"{confine: false, controller: {enabled: false}, removal: {enabled: false}}", []string{"."}},
	} {
		got, want := rendered(t, "acceld-system", c.values), plain(t, c.dirs...)
		for key := range want {
			if strings.HasPrefix(key, "Namespace ") {
				delete(want, key) // Helm makes the namespace, or whoever labels it
			}
		}
		settle(t, got)
		settle(t, want)
		maps.DeleteFunc(want, func(key string, _ object) bool {
			return strings.Contains(c.values, "confine: false") && strings.HasPrefix(key, "ValidatingAdmissionPolicy")
		})
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("with %q (-manifests +chart):\n%s", c.values, diff)
		}
	}
}

// What monitoring adds is what is in packaging/monitoring, less what is switched off; nothing of it is there unless it
// is asked for.
func TestMonitoring(t *testing.T) {
	const service, monitor, pods = "Service acceld-system/acceld-metrics", "ServiceMonitor acceld-system/acceld",
		"PodMonitor acceld-system/acceld"
	const rules, dashboard = "PrometheusRule acceld-system/acceld", "ConfigMap acceld-system/acceld-dashboard"
	const controller = "PodMonitor acceld-system/acceld-controller"
	all := plain(t, "../monitoring")
	pod, err := os.ReadFile(filepath.Join(manifests, "../monitoring/podmonitor.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	read(t, "podmonitor.yaml", pod, all)
	without := rendered(t, "acceld-system", "")
	for _, c := range []struct {
		values  string
		missing []string
	}{
		{"{enabled: true}", []string{pods}},
		{"{enabled: true, monitor: pod}", []string{service, monitor}},
		{"{enabled: true, monitor: none, rules: false}", []string{service, monitor, pods, controller, rules}},
		{"{enabled: true, dashboard: false}", []string{pods, dashboard}},
		{"{enabled: false, monitor: pod}", slices.Collect(maps.Keys(all))},
	} {
		got, want := rendered(t, "acceld-system", "monitoring: "+c.values), maps.Clone(all)
		for key := range without {
			delete(got, key)
		}
		for _, key := range c.missing {
			if want[key] == nil {
				t.Fatalf("there is no %s", key)
			}
			delete(want, key)
		}
		delete(got, "ConfigMap acceld-system/acceld") // the agents', below
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("with %s (-monitoring +chart):\n%s", c.values, diff)
		}
	}
	if got := rendered(t, "acceld-system",
		"{monitoring: {enabled: true}, controller: {enabled: false}}"); got[controller] != nil || got[monitor] == nil {
		t.Error("a controller that is not there is monitored, or nothing is")
	}
	got := rendered(t, "acceld-system",
		"monitoring: {enabled: true, labels: {release: x, app.kubernetes.io/name: other}, scraper: {namespace: watch, name: reader}}")
	for key, name := range map[string]string{monitor: "acceld", rules: "acceld", controller: "acceld-controller"} {
		if diff := gocmp.Diff(object{"app.kubernetes.io/name": name, "release": "x"},
			at(got[key], "metadata", "labels")); diff != "" {
			t.Errorf("labels of %s (-want +got):\n%s", key, diff)
		}
	}
	pod0, port := got["Deployment acceld-system/acceld-controller"], at(got[controller], "spec", "podMetricsEndpoints",
		0, "port")
	if at(pod0, "spec", "template", "spec", "containers", 0, "ports", 1, "name") != port {
		t.Errorf("the controller has no port %q", port)
	}
	for key, want := range at(got[controller], "spec", "selector", "matchLabels").(object) {
		if at(pod0, "spec", "template", "metadata", "labels", key) != want {
			t.Errorf("the monitor of the controller looks for pods with %s: %s", key, want)
		}
	}
	if diff := gocmp.Diff([]any{object{"kind": "ServiceAccount", "namespace": "watch", "name": "reader"}},
		at(got["ClusterRoleBinding <nil>/acceld-metrics"], "subjects")); diff != "" {
		t.Errorf("who may scrape (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]any{object{"kind": "ServiceAccount", "namespace": "acceld-system", "name": "acceld"}},
		at(got["ClusterRoleBinding <nil>/acceld-review"], "subjects")); diff != "" {
		t.Errorf("who may ask about tokens (-want +got):\n%s", diff)
	}
}

// The agents listen where they are scraped, and what their own configuration says goes before that.
func TestMonitoringConfig(t *testing.T) {
	for text, want := range map[string]string{
		"{monitoring: {enabled: true}}": "{endpoint: {remote: {listen: '0.0.0.0:9481', tokens: true}}}",
		"{monitoring: {enabled: true}, agent: {config: {logLevel: debug, endpoint: {remote: {tokens: false, clientCA: /ca}}}}}": "{logLevel: debug, endpoint: {remote: {listen: '0.0.0.0:9481', tokens: false, clientCA: /ca}}}",
	} {
		objects := rendered(t, "acceld-system", text)
		got, _ := at(objects["ConfigMap acceld-system/acceld"], "data", "config.yaml").(string)
		if diff := gocmp.Diff(values(t, want), values(t, got)); diff != "" {
			t.Errorf("with %s (-want +got):\n%s", text, diff)
		}
		if at(objects["DaemonSet acceld-system/acceld"], "spec", "template", "spec", "volumes", 1, "configMap",
			"name") != "acceld" {
			t.Errorf("with %s the agents do not get it", text)
		}
	}
}

// TestExample: the chart takes the example's values, and every image is the registry's of the example.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ds := rendered(t, "acceld-system", string(text))["DaemonSet acceld-system/acceld"]
	if image := fmt.Sprint(ds); !strings.Contains(image, "registry.example.com/acceld/acceld:") {
		t.Errorf("the agent is %s", image)
	}
}

// In another namespace nothing says the usual one.
func TestNamespace(t *testing.T) {
	for key, o := range rendered(t, "other",
		"{dra: true, evict: true, openshift: true, monitoring: {enabled: true}, agent: {config: {logLevel: debug}}}") {
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "acceld-system") {
			t.Errorf("%s: %s", key, b)
		}
	}
}

// vendors returns the place of the variable of an agent's policy that lists vendors.
func vendors(t *testing.T) int {
	t.Helper()
	all, _ := at(rendered(t, "acceld-system", "{}")["ValidatingAdmissionPolicy <nil>/acceld-node"], "spec", "variables").([]any)
	for i, v := range all {
		if at(v, "name") == "vendors" {
			return i
		}
	}
	t.Fatal("no variable lists the vendors")
	return 0
}

// Every value does what it says.
func TestValues(t *testing.T) {
	agent, controller := "DaemonSet acceld-system/acceld", "Deployment acceld-system/acceld-controller"
	job, purge := "Job acceld-system/acceld-remove", "DaemonSet acceld-system/acceld-remove"
	pod := func(more ...any) []any { return append([]any{"spec", "template", "spec"}, more...) }
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, c := range []struct {
		values, object string
		path           []any
		want           any
	}{
		{
			"registry: registry.example.com:5000/x", agent, pod("containers", 0, "image"),
			"registry.example.com:5000/x/acceld:dev",
		},
		{
			"registry: registry.example.com:5000/x", controller, pod("containers", 0, "image"),
			"registry.example.com:5000/x/acceld-controller:dev",
		},
		{
			"registry: registry.example.com:5000/x", purge, pod("initContainers", 0, "image"),
			"registry.example.com:5000/x/acceld:dev",
		},
		{
			"registry: registry.example.com:5000/x", job, pod("containers", 0, "image"),
			"registry.example.com:5000/x/acceld-controller:dev",
		},
		{"agent: {image: {tag: v1}}", agent, pod("containers", 0, "image"), "acceld:v1"},
		{
			"agent: {proxy: {https: 'http://proxy:3128', noProxy: .cluster.local}, env: [{name: X, value: z1}]}", agent,
			pod("containers", 0, "env", 2),
			object{"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
		},
		{
			"agent: {proxy: {https: 'http://proxy:3128', noProxy: .cluster.local}, env: [{name: X, value: z1}]}", agent,
			pod("containers", 0, "env", 4),
			object{"name": "X", "value": "z1"},
		},
		{
			"agent: {updateStrategy: {type: OnDelete}}", agent, []any{"spec", "updateStrategy"}, object{"type": "OnDelete"},
		},
		{
			"agent: {image: {tag: v1, digest: '" + digest + "'}}", purge, pod("containers", 0, "image"),
			"acceld@" + digest,
		},
		{
			"controller: {image: {repository: other/name, pullPolicy: Always}}", job,
			pod("containers", 0, "imagePullPolicy"), "Always",
		},
		{"imagePullSecrets: [{name: s}]", agent, pod("imagePullSecrets", 0, "name"), "s"},
		{"imagePullSecrets: [{name: s}]", job, pod("imagePullSecrets", 0, "name"), "s"},
		{"agent: {nodeSelector: {gpu: 'true'}}", agent, pod("nodeSelector", "gpu"), "true"},
		{"agent: {nodeSelector: {gpu: 'true'}}", purge, pod("nodeSelector", "gpu"), "true"},
		{"agent: {affinity: {nodeAffinity: {}}}", agent, pod("affinity"), object{"nodeAffinity": object{}}},
		{
			"agent: {tolerations: [{key: gpu}]}", agent, pod("tolerations"), []any{object{"key": "gpu"}},
		},
		{
			"agent: {labelDomains: [example.com]}", "ValidatingAdmissionPolicy <nil>/acceld-node",
			[]any{"spec", "variables", vendors(t), "expression"},
			`["amd.com","aws.amazon.com","gpu.intel.com","habana.ai","hailo.ai","npu.intel.com","qemu.org","qualcomm.com",` +
				`"tenstorrent.com","example.com"]`,
		},
		{"agent: {podAnnotations: {a: b}}", agent, []any{"spec", "template", "metadata", "annotations", "a"}, "b"},
		{"agent: {podAnnotations: {a: b}}", agent, []any{
			"spec", "template", "metadata", "annotations",
			"kubectl.kubernetes.io/default-container",
		}, "acceld"},
		{
			"agent: {resources: {requests: {cpu: 1}}}", agent, pod("containers", 0, "resources"),
			object{"requests": object{"cpu": 1.0}},
		},
		{"agent: {resources: {requests: {cpu: 1}}}", purge, pod("containers", 0, "resources", "requests", "cpu"), "1m"},
		{
			"agent: {config: {logLevel: debug}}", "ConfigMap acceld-system/acceld",
			[]any{"data", "config.yaml"},
			"logLevel: debug",
		},
		{
			"agent: {config: {logLevel: debug}}", agent, pod("containers", 0, "volumeMounts", 1, "mountPath"),
			"/etc/acceld",
		},
		{"agent: {config: {logLevel: debug}}", agent, pod("volumes", 1, "configMap", "name"), "acceld"},
		{"controller: {replicas: 1}", controller, []any{"spec", "replicas"}, 1.0},
		{"controller: {tolerations: [{operator: Exists}]}", controller, pod("tolerations", 0, "operator"), "Exists"},
		{
			"controller: {podAnnotations: {a: b}}", controller,
			[]any{"spec", "template", "metadata", "annotations", "a"},
			"b",
		},
		{
			"controller: {extender: false}", "ConfigMap acceld-system/acceld-controller",
			[]any{"data", "controller.yaml"},
			"{}\n",
		},
		{
			"controller: {extender: false, config: {policies: true}}", "ConfigMap acceld-system/acceld-controller",
			[]any{"data", "controller.yaml"},
			"policies: true\n",
		},
		{
			"openshift: true", "RoleBinding acceld-system/acceld-privileged",
			[]any{"roleRef", "name"},
			"system:openshift:scc:privileged",
		},
		{"openshift: true", controller, pod("securityContext", "runAsUser"), nil},
		{"openshift: true", controller, pod("securityContext", "runAsNonRoot"), true},
		{"removal: {keepDrivers: true}", purge, pod("initContainers", 0, "command", 4), "--keep-drivers"},
		{"removal: {timeout: 1h30m}", job, pod("containers", 0, "args", 2), "1h30m"},
	} {
		got := at(rendered(t, "acceld-system", c.values)[c.object], c.path...)
		if text, ok := got.(string); ok && c.path[0] == "data" {
			got, c.want = strings.TrimSpace(text), strings.TrimSpace(fmt.Sprint(c.want))
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s %v (-want +got):\n%s", c.values, c.object, c.path, diff)
		}
	}
	sum := func(text string) any {
		return at(rendered(t, "acceld-system", text)[controller], "spec", "template", "metadata", "annotations",
			"acceld.dev/config")
	}
	if a, b := sum(""), sum("controller: {config: {packing: spread}}"); a == nil || a == b {
		t.Errorf("another configuration does not restart the controller: %v, %v", a, b)
	}
}

// What is misspelt, or cannot be, is refused by name before anything is changed.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"agnet: {}":                              "agnet",
		"agent: {image: {taag: v1}}":             "taag",
		"agent: {image: {digest: sha256:12}}":    "digest",
		"agent: {image: {repository: ''}}":       "repository",
		"registry: 'https://x'":                  "registry",
		"controller: {replicas: 0}":              "replicas",
		"controller: {replicas: two}":            "replicas",
		"confine: 'no'":                          "confine",
		"monitoring: {monitor: both}":            "monitor",
		"monitoring: {scraper: {account: x}}":    "account",
		"removal: {timeout: 5}":                  "timeout",
		"removal: {timeout: soon}":               "timeout",
		"imagePullSecrets: [registry]":           "imagePullSecrets",
		"agent: {nodeSelector: {gpu: true}}":     "gpu",
		"agent: {labelDomains: [kubernetes.io]}": "labelDomains",
		"agent: {labelDomains: [sub.k8s.io]}":    "labelDomains",
		"agent: {labelDomains: ['a\"]']}":        "labelDomains",
		"agent: {resources: {limit: {cpu: 1}}}":  "limit",
	} {
		if _, err := render(t, "acceld-system", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// The default of every value is in values.yaml, and the schema knows it.
func TestSchemaHasEveryValue(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema object
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var compare func(path string, schema, have object)
	compare = func(path string, schema, have object) {
		properties, _ := schema["properties"].(object)
		want := slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(key string) bool {
			return key == "global"
		})
		if diff := gocmp.Diff(want, slices.Sorted(maps.Keys(have))); diff != "" {
			t.Errorf("%s (-schema +values):\n%s", path, diff)
		}
		for key, p := range properties {
			if below, ok := have[key].(object); ok && p.(object)["properties"] != nil {
				compare(path+"."+key, p.(object), below)
			}
		}
	}
	compare("values", schema, values(t, string(text)))
}

// Helm deletes hooks that are done, runs them after everything else is gone, and rights before those that need them.
func TestHooks(t *testing.T) {
	weights := map[string]string{
		"ServiceAccount": "-10", "ClusterRole": "-10", "ClusterRoleBinding": "-10",
		"Role": "-10", "RoleBinding": "-10", "DaemonSet": "-5", "Job": "0",
	}
	hooks := 0
	for key, o := range rendered(t, "acceld-system", "openshift: true") {
		name := fmt.Sprint(at(o, "metadata", "name"))
		annotations, _ := at(o, "metadata", "annotations").(object)
		if !strings.HasPrefix(name, "acceld-remove") {
			if annotations["helm.sh/hook"] != nil {
				t.Errorf("%s is a hook", key)
			}
			continue
		}
		hooks++
		want := object{
			"helm.sh/hook": "post-delete", "helm.sh/hook-weight": weights[fmt.Sprint(o["kind"])],
			"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
		}
		if diff := gocmp.Diff(want, annotations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	if hooks != 8 {
		t.Errorf("%d hooks", hooks)
	}
}

func TestLint(t *testing.T) {
	for _, text := range []string{
		"",
		"{dra: true, evict: true, openshift: true, monitoring: {enabled: true, monitor: pod}, registry: registry.example.com, agent: {config: {logLevel: debug}}}",
	} {
		for _, m := range lint.AllWithKubeVersion(chartDir, values(t, text), "acceld-system", kubernetes()).Messages {
			// An icon is for catalogues.
			if m.Severity >= support.InfoSev && !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("with %q: %v", text, m)
			}
		}
	}
}

// TestPages holds the commands of the pages that name the chart to it: its values are known, and what is asked for
// renders.
func TestPages(t *testing.T) {
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for line := range strings.Lines(string(page)) {
		words := strings.Fields(line)
		if len(words) < 4 || words[0] != "helm" || words[1] != "install" && words[1] != "upgrade" {
			continue
		}
		commands++
		set := object{}
		for i, w := range words {
			if w != "--set" {
				continue
			}
			if err := strvals.ParseInto(words[i+1], set); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		text, err := yaml.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := render(t, "acceld-system", string(text)); err != nil || words[2] != "acceld" ||
			words[3] != "packaging/chart" {
			t.Errorf("%s: %v", line, err)
		}
	}
	if commands < 3 {
		t.Errorf("%d commands", commands)
	}
	for line := range strings.Lines(string(page)) {
		name, ok := strings.CutPrefix(line, "| `")
		if !ok || !strings.Contains(line, "`") {
			continue
		}
		for _, name := range strings.Split(strings.Split(name, " | ")[0], ",") {
			name = strings.Trim(name, " `")
			if has(t, name) == nil && !slices.Contains([]string{"remove"}, name) {
				t.Errorf("the chart has no value %q", name)
			}
		}
	}
}

// has returns the default of a value.
func has(t *testing.T, name string) any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var keys []any
	for _, key := range strings.Split(name, ".") {
		keys = append(keys, key)
	}
	return at(values(t, string(text)), keys...)
}

// kubernetes is the version that the chart is rendered for.
func kubernetes() *chartutil.KubeVersion {
	return &chartutil.KubeVersion{Version: "v1.37.1", Major: "1", Minor: "37"}
}
