package gate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLargeFiles: a file that is larger than it can legitimately be is not read to its end, and does not open the
// gate.
func TestLargeFiles(t *testing.T) {
	const (
		readiness = `{"version":1,"devices":[{"id":"0000:01:00.0","nodes":[{"path":"/dev/edu0","major":240,"minor":0}],"ready":true}]}`
		container = `{"linux":{"devices":[{"path":"/dev/edu0","type":"c","major":240,"minor":0}]}}`
	)
	for name, c := range map[string]struct {
		state, spec int // sizes
		ids         []string
		want        string
	}{
		"as large as allowed":     {state: maxState, spec: maxSpec},
		"a large readiness":       {state: maxState + 1, ids: []string{"0000:01:00.0"}, want: "larger than"},
		"a large readiness, read": {state: maxState + 1, spec: 1000, want: "larger than"},
		"a large specification":   {state: 1000, spec: maxSpec + 1, want: "larger than"},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{
			"devices.json": readiness + strings.Repeat(" ", max(0, c.state-len(readiness))),
			"config.json":  container + strings.Repeat(" ", max(0, c.spec-len(container))),
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := Decide(Request{IDs: c.ids, State: filepath.Join(dir, "devices.json")},
			strings.NewReader(fmt.Sprintf(`{"bundle":%q}`, dir)))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChosenForNobody: a choice applies to the container that it names; one that names none applies to none.
func TestChosenForNobody(t *testing.T) {
	f := File{
		Devices: []Device{{ID: "a", Kind: "k", Ready: true}, {ID: "b", Kind: "k", Ready: true}},
		Choices: []Choice{{Devices: []string{"b"}}, {Pod: "u", Container: "main", Devices: []string{"b"}}},
	}
	for name, c := range map[string]struct {
		annotations map[string]string
		refused     bool
	}{
		"it is named": {map[string]string{
			"io.kubernetes.pod.uid":        "u",
			"io.kubernetes.container.name": "main",
		}, true},
		"another container of the pod": {map[string]string{
			"io.kubernetes.pod.uid":        "u",
			"io.kubernetes.container.name": "side",
		}, false},
		"it says nothing about itself": {nil, false},
		"it says its container's name": {map[string]string{"io.kubernetes.container.name": "main"}, false},
		"it says nothing that has a value": {map[string]string{
			"io.kubernetes.pod.uid":        "",
			"io.kubernetes.container.name": "",
		}, false},
	} {
		if err := f.Chosen(Container{Annotations: c.annotations}, []string{"a"}); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLargeState: an OCI state that is longer than it can legitimately be does not open the gate, neither for a device
// that CDI injected nor for one that the container's specification has. All of it is read.
func TestLargeState(t *testing.T) {
	const id = "0000:01:00.0"
	dir := t.TempDir()
	for file, text := range map[string]string{
		"devices.json": `{"version":1,"devices":[
			{"id":"` + id + `","kind":"k","ready":true},{"id":"0000:02:00.0","kind":"k","ready":true}],
			"choices":[{"pod":"u","container":"main","devices":["0000:02:00.0"]}]}`,
		"config.json": `{"annotations":{"io.kubernetes.pod.uid":"u","io.kubernetes.container.name":"main"},
			"linux":{"devices":[{"path":"/dev/edu0","type":"c"}]}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	state := fmt.Sprintf(`{"bundle":%q`, dir)
	for name, c := range map[string]struct {
		state string
		ids   []string
		want  string
	}{
		"injected, not chosen":         {state + "}", []string{id}, "is not the one that the scheduler chose"},
		"injected, a long state":       {state + strings.Repeat(" ", maxState) + "}", []string{id}, "longer than 1048576 bytes"},
		"injected, no state":           {"", []string{id}, "cannot parse the container's state"},
		"injected, no specification":   {`{"bundle":"/nonexistent"}`, []string{id}, "cannot read the container's spec"},
		"in the bundle, a long state":  {state + strings.Repeat(" ", 3*maxState) + "}", nil, "longer than 1048576 bytes"},
		"injected, the longest state":  {pad(state, maxState), []string{"0000:02:00.0"}, ""},
		"injected, one byte too long":  {pad(state, maxState+1), []string{"0000:02:00.0"}, "longer than"},
		"in the bundle, longest state": {pad(state, maxState), nil, ""},
	} {
		in := strings.NewReader(c.state)
		err := Decide(Request{IDs: c.ids, State: filepath.Join(dir, "devices.json")}, in)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if in.Len() > 0 {
			t.Errorf("%s: %d bytes were not read", name, in.Len())
		}
	}
}

// pad completes an object with spaces to a size.
func pad(object string, size int) string {
	return object + strings.Repeat(" ", size-len(object)-1) + "}"
}
