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
