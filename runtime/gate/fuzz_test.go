package gate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzFile: whatever is in the readiness file, the gate answers in one short line, and does not open for a device that
// the file does not call ready. What the gate accepts, the agent would write again.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"devices":[{"id":"a","kind":"k","ready":true},{"id":"b","reason":"DeviceGone","message":"x\ny"}]}`,
		`{"version":1,"choices":[{"pod":"u","container":"c","devices":["a"]}]}`,
		`{"version":2}`, `{"version":1,"devices":[{"id":"a","nodes":[{"path":"/dev/a","major":-1}]}]}`, `[`, ``,
		`{"version":1,"devices":[{"id":"a","message":"` + strings.Repeat("x", maxMessage+1) + `"}]}`,
		`{"version":1,"devices":[{"id":"` + strings.Repeat("x", maxName+1) + `"}]}`,
	} {
		f.Add([]byte(seed), "a")
	}
	f.Fuzz(func(t *testing.T, b []byte, id string) {
		file, err := Decode(b)
		if err != nil {
			return
		}
		ready := false
		for _, d := range file.Devices {
			if d.ID == id {
				ready = d.Ready
				break
			}
		}
		err = file.Named([]string{id})
		if err == nil && !ready {
			t.Errorf("the gate opens for %q, which is not ready", id)
		}
		const most = maxPath + 3*maxName + maxMessage + 100
		if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > most+len(id)) {
			t.Errorf("an answer of %d bytes: %.100q", len(err.Error()), err)
		}
		again, err := Encode(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil {
			t.Errorf("the agent's own file is refused: %v", err)
		}
	})
}

// FuzzState: no OCI state makes the gate read anything but the specification in the bundle, or open for a device that
// is not ready.
func FuzzState(f *testing.F) {
	for _, seed := range []string{
		`{"ociVersion":"1.0.2","bundle":"BUNDLE"}`, `{"bundle":"relative"}`, `{"bundle":"/"}`, `{"bundle":1}`, `{`, ``,
		`{"bundle":"BUNDLE","annotations":{"acceld.dev/devices":"a"}}`,
	} {
		f.Add([]byte(seed), []byte(`{"linux":{"devices":[{"path":"/dev/a","type":"c","major":1,"minor":1}]}}`))
	}
	dir := f.TempDir()
	readiness := filepath.Join(dir, "devices.json")
	text, err := json.Marshal(File{Version: Version, Devices: []Device{
		{ID: "a", Nodes: []Node{{Path: "/dev/a", Major: 1, Minor: 1}}, Reason: "DeviceUnhealthy"},
	}})
	if err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(readiness, text, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, state, spec []byte) {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), spec, 0o600); err != nil {
			t.Fatal(err)
		}
		in := strings.ReplaceAll(string(state), "BUNDLE", dir)
		if Decide(Request{IDs: []string{"a"}, State: readiness}, strings.NewReader(in)) == nil {
			t.Error("the gate opens for an unhealthy device that CDI injected")
		}
		if Decide(Request{State: readiness}, strings.NewReader(in)) != nil {
			return
		}
		c, err := container([]byte(in))
		if err != nil {
			t.Errorf("the gate opens without a specification: %v", err)
		}
		for _, d := range c.Linux.Devices {
			if d.Path == "/dev/a" && d.Type == "c" {
				t.Error("the gate opens for an unhealthy device in the specification")
			}
		}
	})
}

// TestLimits: what the readiness file says is bounded, and a message that is too long is shortened by the agent.
func TestLimits(t *testing.T) {
	long := strings.Repeat("ä", maxMessage)
	b, err := Encode(File{Devices: []Device{{ID: "a", Message: long}}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Devices[0].Message; len(got) > maxMessage || !strings.HasSuffix(got, "ä…") {
		t.Errorf("a message of %d bytes: %q", len(got), got)
	}
	for name, f := range map[string]File{
		"devices":           {Devices: make([]Device, maxDevices+1)},
		"nodes":             {Devices: []Device{{Nodes: make([]Node, maxNodes+1)}}},
		"a path":            {Devices: []Device{{Nodes: []Node{{Path: strings.Repeat("x", maxPath+1)}}}}},
		"an ID":             {Devices: []Device{{ID: strings.Repeat("x", maxName+1)}}},
		"choices":           {Choices: make([]Choice, maxDevices+1)},
		"chosen devices":    {Choices: []Choice{{Devices: make([]string, maxNodes+1)}}},
		"a container":       {Choices: []Choice{{Container: strings.Repeat("x", maxName+1)}}},
		"a chosen device's": {Choices: []Choice{{Devices: []string{strings.Repeat("x", maxName+1)}}}},
	} {
		b, err := Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(b); err == nil {
			t.Errorf("%s: accepted", name)
		} else if diff := cmp.Diff(File{}, got); diff != "" {
			t.Errorf("%s: something is returned: %s", name, diff)
		}
	}
}
