package deviceplugin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// checkpointed is a checkpoint in the form of the kubelet 1.37.
const checkpointed = `{"Data":{"PodDeviceEntries":[{"PodUID":"0b8f7b1e-6c1d-4f3e-9a53-0d5b8f0c2e11",` +
	`"ContainerName":"main","ResourceName":"example.com/thing","DeviceIDs":{"-1":["a"],"1":["b"]},"AllocResp":"CgA="},` +
	`{"PodUID":"over","ContainerName":"main","ResourceName":"example.com/thing","DeviceIDs":{"0":["c"]},"AllocResp":""},` +
	`{"PodUID":"static","ContainerName":"init","ResourceName":"example.com/old","DeviceIDs":{"0":["d"]},"AllocResp":""},` +
	`{"PodUID":"static","ContainerName":"x","ResourceName":"example.com/of-others","DeviceIDs":null,"AllocResp":""}],` +
	`"RegisteredDevices":{"example.com/thing":["a","b","c"]}},"Checksum":3456789012}`

func TestParseCheckpoint(t *testing.T) {
	all, err := parseCheckpoint([]byte(checkpointed))
	if err != nil || len(all) != 4 {
		t.Fatalf("%v, %v", all, err)
	}
	slices.Sort(all[0].ids)
	want := given{
		pod: "0b8f7b1e-6c1d-4f3e-9a53-0d5b8f0c2e11", container: "main", resource: "example.com/thing",
		ids: []string{"a", "b"},
	}
	if diff := cmp.Diff(want, all[0], cmp.AllowUnexported(given{})); diff != "" {
		t.Error(diff)
	}
	empty := `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`
	if all, err := parseCheckpoint([]byte(empty)); err != nil || all != nil {
		t.Errorf("no devices: %v, %v", all, err)
	}
	for _, bad := range []string{
		"", "null", "{}", `{"Data":1}`, checkpointed[:40],
		`{"Data":{"PodDeviceEntries":[{"PodUID":"","ContainerName":"a"}]}}`,
		`{"Data":{"PodDeviceEntries":[{"PodUID":"../x","ContainerName":"a"}]}}`,
		`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"a\nb"}]}}`,
		`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"a","DeviceIDs":["a"]}]}}`,
	} {
		if all, err := parseCheckpoint([]byte(bad)); err == nil {
			t.Errorf("%q is %v", bad, all)
		}
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add(checkpointed)
	f.Add(`{"Data":{}}`)
	f.Add(`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"a","DeviceIDs":{"0":[""]}}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseCheckpoint([]byte(text))
		if err != nil && all != nil {
			t.Errorf("an error and %v", all)
		}
		for _, g := range all {
			if strings.ContainsAny(g.pod+g.container, "/\n ") || g.pod == "" {
				t.Errorf("%+v", g)
			}
		}
	})
}

// TestHeldByCheckpoint: the kubelet lists no pod, and its checkpoint has some. Those that run hold their devices; if
// nobody can tell, it is not known who holds devices, and nobody is forgotten.
func TestHeldByCheckpoint(t *testing.T) {
	k := newFakeKubelet(t)
	k.start()
	defer k.stop()
	name := filepath.Join(k.dir, checkpointFile)
	if err := os.WriteFile(name, []byte(checkpointed), 0o600); err != nil {
		t.Fatal(err)
	}
	const uid = "0b8f7b1e-6c1d-4f3e-9a53-0d5b8f0c2e11"
	pods, unknown := host.Pods{strings.ReplaceAll(uid, "-", "_"): true, "static": true}, error(nil)
	p := newPlugin(k, func(c *Config) {
		c.Former = []string{"example.com/old"}
		c.Pods = func() (host.Pods, error) { return pods, unknown }
	})
	defer p.kubelet.close()
	run := map[string]PodRef{
		"a": {UID: uid, Container: "main"}, "b": {UID: uid, Container: "main"}, "d": {UID: "static", Container: "init"},
	}
	look := func(what string, want map[string]PodRef, known bool) {
		t.Helper()
		held, err := p.Holders(t.Context())
		if diff := cmp.Diff(want, held); diff != "" || known != (err == nil) {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	look("pods run", run, true)
	k.set(func() { k.held = map[string]PodRef{"a": {Namespace: "ns", Pod: "p", Container: "main"}} })
	look("one is listed", map[string]PodRef{
		"a": {Namespace: "ns", Pod: "p", Container: "main"}, "b": run["b"], "d": run["d"],
	}, true)
	k.set(func() { k.held = nil })
	unknown = errors.New("no control groups")
	look("not known", map[string]PodRef{
		"a": {Namespace: "ns", Pod: "p", Container: "main"}, "b": run["b"], "d": run["d"],
	}, false)
	unknown, pods = nil, host.Pods{}
	look("they have ended", map[string]PodRef{}, true)
	for _, text := range []string{`{"Data":`, strings.Repeat(" ", maxCheckpoint+1)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		look("a checkpoint that cannot be read", map[string]PodRef{}, false)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	look("no checkpoint", map[string]PodRef{}, true)
}

// TestGiven: pods that the kubelet has given devices, whatever the resource is called.
func TestGiven(t *testing.T) {
	k := NewKind(Config{Resource: "example.com/thing", Dir: t.TempDir(), Definition: &accel.Definition{}})
	if pods, err := k.Given(); err != nil || len(pods) > 0 {
		t.Errorf("a kubelet that never gave out a device: %v, %v", pods, err)
	}
	name := filepath.Join(k.cfg.Dir, checkpointFile)
	if err := os.WriteFile(name, []byte(checkpointed), 0o600); err != nil {
		t.Fatal(err)
	}
	const uid = "0b8f7b1e-6c1d-4f3e-9a53-0d5b8f0c2e11"
	want := map[string][]string{"a": {uid}, "b": {uid}, "c": {"over"}, "d": {"static"}}
	if pods, err := k.Given(); err != nil || !cmp.Equal(want, pods) {
		t.Errorf("%v, %v", pods, err)
	}
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pods, err := k.Given(); err == nil {
		t.Errorf("damaged: %v", pods)
	}
}
