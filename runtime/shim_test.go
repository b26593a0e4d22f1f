package runtime

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// TestPassesOn: whether cri-dockerd passes on devices shows in the newest container that it created for a pod with
// devices, and only there.
func TestPassesOn(t *testing.T) {
	const (
		since = 1_700_000_000
		none  = `{"HostConfig":{"Devices":[],"DeviceRequests":null}}`
		named = `{"HostConfig":{"DeviceRequests":[{"Driver":"nvidia"},{"Driver":"cdi","DeviceIDs":["qemu.org/edu=a"]}]}}`
		nodes = `{"HostConfig":{"Devices":[{"PathOnHost":"/dev/edu0"}]}}`
	)
	id := func(n int) string { return strings.Repeat(fmt.Sprint(n), 64) }
	list := func(created ...int) string {
		var all []string
		for n, at := range created {
			all = append(all, fmt.Sprintf(`{"Id":%q,"Created":%d}`, id(n+1), at))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for name, c := range map[string]struct {
		answers map[string]string
		unknown bool // when it started
		want    string
		problem bool
	}{
		"no container yet": {map[string]string{"": list()}, false, "no container has one yet", false},
		"nobody answers":   {nil, false, "cannot list docker's containers", false},
		"no list":          {map[string]string{"": "{}"}, false, "cannot list docker's containers", false},
		"by name":          {map[string]string{"": list(since + 5), id(1): named}, false, "passes on devices, as container 111111111111", false},
		"not at all":       {map[string]string{"": list(since + 5), id(1): none}, false, "does not pass on the names", true},
		"the newest counts": {
			map[string]string{"": list(since+5, since+4), id(1): named, id(2): none}, false, "passes on devices", false,
		},
		"of a predecessor": {map[string]string{"": list(since - 5), id(1): none}, false, "no container has one yet", false},
		"nobody knows whose": {
			map[string]string{"": list(since + 5), id(1): none}, true, "not known whether", false,
		},
		"by node": {
			map[string]string{"": list(since+5, since+4), id(1): nodes, id(2): named}, false, "as container 222222222222", false,
		},
		"gone meanwhile": {
			map[string]string{"": list(since+5, since+4), id(2): none}, false, "container 222222222222 has none", true,
		},
		"no id": {map[string]string{"": `[{"Id":"../../info","Created":1800000000}]`}, false, "no container has one", false},
	} {
		cl := dockerClient(t, c.answers)
		e := accel.ContainerEngine{
			Name: "docker", Endpoint: "unix:///run/cri-dockerd.sock", Through: "cri-dockerd 0.3.4",
			ThroughStarted: time.Unix(since, 0),
		}
		if c.unknown {
			e.ThroughStarted = time.Time{}
		}
		text, p := cl.passesOn(e, nil)
		if !strings.Contains(text, c.want) || !strings.Contains(text, e.Through) || (p != nil) != c.problem {
			t.Errorf("%s: %q, %v", name, text, p)
		}
		earlier := accel.Problemf(accel.RuntimeConfigInvalid, "x")
		if _, p := cl.passesOn(e, earlier); p != earlier {
			t.Errorf("%s: an earlier problem is hidden by %v", name, p)
		}
	}
}

// dockerClient returns a client on a machine whose docker answers with these texts: the list, and containers by id.
func dockerClient(t *testing.T, answers map[string]string) *client {
	t.Helper()
	root, err := os.MkdirTemp("", "shim") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	cl := &client{host: h, live: func() bool { return true }}
	if answers == nil {
		return cl
	}
	if err := h.MkdirAll("/var/run", 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(root, "var/run/docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		key := strings.TrimSuffix(strings.TrimPrefix(req.URL.Path, "/containers/"), "/json")
		if req.URL.Path == "/containers/json" {
			key = ""
			if f := req.URL.Query().Get("filters"); f != `{"label":["annotation.acceld.dev/devices"]}` {
				t.Errorf("filters %q", f)
			}
		}
		text, ok := answers[key]
		if !ok {
			http.NotFound(w, req)
			return
		}
		_, _ = w.Write([]byte(text))
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return cl
}
