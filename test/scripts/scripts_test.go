// Package scripts holds the command line to what people and other programs see of it: output, messages and exit codes
// of the real program, one txtar script per theme in testdata. It needs no root, no network and no accelerator.
//
// Beside the commands of testscript (pkg.go.dev/github.com/rogpeppe/go-internal/testscript) the scripts have:
//
//	exits CODE CMD...    run CMD and expect this exit code; stdout and stderr then look at its output
//	nobody CODE CMD...   the same without root's rights
//	machine NAME DIR     write the machine NAME of test/machines below DIR
//	agent FILE           answer as the agent of the host root "host" with the machine in FILE, from now on
//	agent CODE FILE      answer with this HTTP status and whatever is in FILE
//	agent stop           answer no more
//	asked                wait until a question that began after the last agent command was answered and printed
//
// `go test ./test/scripts -update` writes what cmp compares with.
package scripts

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/cmd/acceld/cli"
	"github.com/acceld/acceld/test/machines"
)

var update = flag.Bool("update", false, "write what cmp compares with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"acceld": func() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

type key struct{} // of the fake agent of a script

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			a := &fakeAgent{socket: filepath.Join(e.WorkDir, "host/run/acceld/acceld.sock")}
			a.changed = sync.NewCond(&a.mu)
			e.Values[key{}] = a
			e.Defer(a.stop)
			e.Setenv("TZ", "UTC")
			return nil
		},
		Condition: func(c string) (bool, error) {
			if c == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, errors.New("no such condition")
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "nobody": nobody, "machine": machine, "agent": agent, "asked": asked,
		},
	})
}

// expected splits the arguments of exits and nobody.
func expected(ts *testscript.TestScript, neg bool, args []string) (code int, name string, rest []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits|nobody CODE CMD...")
	}
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	return code, args[1], args[2:]
}

func compare(ts *testscript.TestScript, err error, want int) {
	got := 0
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		got = failed.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	code, name, rest := expected(ts, neg, args)
	compare(ts, ts.Exec(name, rest...), code)
}

func nobody(ts *testscript.TestScript, neg bool, args []string) {
	code, name, rest := expected(ts, neg, args)
	// This program is the other one too, by its name; by way of proc it needs no right to look into the directory.
	cmd := exec.Command("/proc/self/exe", rest...)
	cmd.Args[0] = name
	cmd.Dir = ts.MkAbs(".")
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	if os.Geteuid() == 0 {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	compare(ts, cmd.Run(), code)
}

func machine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: machine NAME DIR")
	}
	ts.Check(machines.Write(ts.MkAbs(args[1]), args[0]))
}

// fakeAgent answers on the agent's socket.
type fakeAgent struct {
	socket string
	server *http.Server

	mu       sync.Mutex
	changed  *sync.Cond // answered has changed
	code     int
	body     []byte
	answered int // since code or body changed
}

func (a *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.URL.Path == "/v1/holders" {
		// the client may have gone
		_, _ = io.WriteString(w, `{"0000:00:04.0": [{"namespace": "ml", "pod": "train-0"}]}`)
		return
	}
	if r.Method != http.MethodGet || r.URL.Path != "/v1/machine" {
		http.Error(w, "wrong question", http.StatusBadRequest)
		return
	}
	var m accel.Machine
	if json.Unmarshal(a.body, &m) == nil { // the fake agent's clock stands where the machine was taken
		w.Header().Set("Date", m.Taken.UTC().Format(http.TimeFormat))
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body) // the client may have gone
	a.answered++
	a.changed.Broadcast()
}

func (a *fakeAgent) say(code int, body []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.code, a.body, a.answered = code, body, 0
	if a.server != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(a.socket), 0o755); err != nil {
		return err
	}
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		return err
	}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(l) }(a.server) // it ends with stop
	return nil
}

func (a *fakeAgent) stop() {
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server != nil {
		_ = server.Close() // the socket goes with it
	}
}

func agent(ts *testscript.TestScript, neg bool, args []string) {
	a, ok := ts.Value(key{}).(*fakeAgent)
	switch {
	case neg || !ok || len(args) == 0 || len(args) > 2:
		ts.Fatalf("usage: agent FILE | agent CODE FILE | agent stop")
	case args[0] == "stop":
		a.stop()
	case len(args) == 1:
		text := ts.ReadFile(args[0])
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields() // a script with a field that is no more would say nothing
		ts.Check(d.Decode(&accel.Machine{}))
		ts.Check(a.say(http.StatusOK, []byte(text)))
	default:
		code, err := strconv.Atoi(args[0])
		ts.Check(err)
		ts.Check(a.say(code, bytes.TrimSpace([]byte(ts.ReadFile(args[1])))))
	}
}

func asked(ts *testscript.TestScript, neg bool, args []string) {
	a, ok := ts.Value(key{}).(*fakeAgent)
	if neg || !ok || len(args) > 0 {
		ts.Fatalf("usage: asked")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.answered < 2 { // whoever asks a second time has printed the first answer
		a.changed.Wait()
	}
}
