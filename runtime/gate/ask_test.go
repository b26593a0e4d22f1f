package gate

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/guard"
)

// serve answers the hooks that connect to a socket, one at a time, until the test ends.
func serve(t *testing.T, socket string, answer func(Ask) Answer) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-ended })
	guard.Go(func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if a, err := ReadAsk(conn); err == nil {
				_ = WriteAnswer(conn, answer(a))
			}
			_ = conn.Close()
		}
	})
}

// TestHandedOver: a container with devices that are handed over waits for the agent's answer, and does not start
// without one. Other containers ask nobody.
func TestHandedOver(t *testing.T) {
	dir := t.TempDir()
	state, bundle := filepath.Join(dir, "devices.json"), filepath.Join(dir, "bundle")
	b, err := Encode(File{Devices: []Device{
		{ID: "a", Kind: "x-y", Ready: true, Handover: 1, Nodes: []Node{{Path: "/dev/a", Major: 240, Minor: 0}}},
		{ID: "b", Kind: "x-y", Ready: true, Handover: 1, Nodes: []Node{{Path: "/dev/b", Major: 240, Minor: 1}}},
		{ID: "c", Kind: "x-z", Ready: true, Nodes: []Node{{Path: "/dev/c", Major: 240, Minor: 2}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	spec := `{"linux":{"devices":[{"path":"/dev/a","type":"c","major":240,"minor":0},{"path":"/dev/c","type":"c","major":240,"minor":2}]}}`
	for name, text := range map[string][]byte{state: b, filepath.Join(bundle, "config.json"): []byte(spec)} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	decide := func(socket string, ids ...string) error {
		stdin := strings.NewReader(fmt.Sprintf(`{"pid":42,"bundle":%q}`, bundle))
		return Decide(Request{IDs: ids, State: state, Socket: filepath.Join(dir, socket)}, stdin)
	}
	var asked []Ask
	serve(t, filepath.Join(dir, "yes"), func(a Ask) Answer { asked = append(asked, a); return Answer{} })
	serve(t, filepath.Join(dir, "no"), func(Ask) Answer {
		return Answer{Reason: "LeftoverProcess", Message: strings.Repeat("x", 2*maxMessage)}
	})
	for _, ids := range [][]string{{"a"}, {"c", "b"}, nil} {
		if err := decide("yes", ids...); err != nil {
			t.Errorf("%q: %v", ids, err)
		}
	}
	if got := fmt.Sprint(asked); got != "[{42 [a]} {42 [b]} {42 [a]}]" {
		t.Errorf("asked %s", got)
	}
	if err := decide("none", "c"); err != nil {
		t.Errorf("a device that is not handed over: %v", err)
	}
	err = decide("no", "a")
	if err == nil || !strings.HasPrefix(err.Error(), "device a is not ready: LeftoverProcess: xxx") ||
		len(err.Error()) > maxMessage+100 {
		t.Errorf("%v", err)
	}
	if err := decide("none", "a"); err == nil || !strings.Contains(err.Error(), "HandoverRefused: the agent") {
		t.Errorf("without an agent: %v", err)
	}
	guard.Go(func() {
		time.Sleep(3 * between)
		serve(t, filepath.Join(dir, "late"), func(Ask) Answer { return Answer{} })
	})
	if err := decide("late", "a"); err != nil {
		t.Errorf("an agent that is restarted: %v", err)
	}
	noProcess := strings.NewReader(fmt.Sprintf(`{"bundle":%q}`, bundle))
	if err := Decide(Request{IDs: []string{"a"}, State: state}, noProcess); err == nil {
		t.Error("a container without a process was admitted")
	}
}

func FuzzReadAsk(f *testing.F) {
	f.Add([]byte("{\"pid\":1,\"devices\":[\"0000:01:00.0\"]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := ReadAsk(bytes.NewReader(text))
		if err == nil && (a.PID <= 0 || len(a.Devices) == 0 || len(a.Devices) > maxNodes) {
			t.Fatalf("%+v", a)
		}
	})
}
