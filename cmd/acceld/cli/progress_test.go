package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/agent/client"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/test/machines"
)

// TestWorking has a row for each text that people see about a running stage, and about its end.
func TestWorking(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		p                    accel.Progress
		ago                  time.Duration
		working, worked, cut string
	}{
		{
			accel.Progress{Stage: accel.StagePull, What: "registry.example/edu:1", Kind: "qemu-edu"},
			time.Second,
			"qemu-edu: pulling, 1s: registry.example/edu:1", "qemu-edu: pulling took 1s",
			"qemu-edu: interrupted while pulling, after 1s: nothing was changed",
		},
		{
			accel.Progress{
				Stage: accel.StagePull, What: "registry.example/edu@sha256:ab", Done: 20_400_000,
				Total: 95_000_000,
			},
			10 * time.Second,
			"pulling, 20.4 of 95.0 MB (21 %), 10s, ~37s left: registry.example/edu@sha256:ab",
			"pulling took 10s, 20.4 of 95.0 MB (21 %)", "interrupted while pulling, after 10s: nothing was changed",
		},
		{
			accel.Progress{
				Stage: accel.StagePull, Done: 1_000_000, Total: 95_000_000, Attempt: 2,
				Again: now.Add(-time.Second), Problem: "nothing came for 30s\x1b[2J",
			},
			80 * time.Second,
			"pulling, 1.0 of 95.0 MB (1 %), 1m20s, attempt 2 because nothing came for 30s [2J",
			"pulling failed after 1m20s: nothing came for 30s [2J", "",
		},
		{
			accel.Progress{Stage: accel.StagePull, Done: 95_000_000, Total: 95_000_000},
			31 * time.Second,
			"unpacking, 95.0 MB, 31s", "pulling took 31s, 95.0 MB", "",
		},
		{
			accel.Progress{Stage: accel.StagePush, Done: 1_000_000},
			3 * time.Second,
			"pushing, 1.0 MB, 3s", "pushing took 3s, 1.0 MB",
			"interrupted while pushing, after 3s: the driver is in the store but not published",
		},
		{
			accel.Progress{Stage: accel.StageCopy, What: "/usr/src/edu-1.0.0", Step: 1},
			3 * time.Second,
			"copying the source, step 1, 3s: /usr/src/edu-1.0.0", "copying the source took 3s",
			"interrupted while copying the source, after 3s: nothing was changed",
		},
		{
			accel.Progress{
				Stage: accel.StageBuild, What: "CC [M] nv.o", Step: 3, Steps: 4, Done: 60, Total: 240,
				Guessed: true,
			},
			time.Minute,
			"building, step 3 of 4, 60 of ~240 commands (~25 %), 1m0s, ~3m0s left: CC [M] nv.o",
			"building took 1m0s, 60 of ~240 commands (~25 %)", "",
		},
		{
			accel.Progress{Stage: accel.StageBuild, What: "make", Step: 2, Steps: 3, Done: 1},
			time.Hour + time.Minute,
			"building, step 2 of 3, 1 command, 1h1m0s: make", "building took 1h1m0s, 1 command", "",
		},
		{
			accel.Progress{Stage: accel.StageBuild, Done: 3, Problem: "a.c:1:2: error: bad"},
			4 * time.Second,
			"building, 3 commands, 4s", "building failed after 4s", "",
		},
		{
			accel.Progress{Stage: accel.StageLoad, What: "edu", Total: 2, Done: 1},
			4 * time.Second,
			"loading, 1 of 2 modules, 4s: edu", "loading took 4s, 1 of 2 modules",
			"interrupted while loading, after 4s: the same command continues from there",
		},
		{
			accel.Progress{Stage: accel.StageWait, What: "process 17 (acceld)"},
			4 * time.Second,
			"waiting for another acceld, 4s: process 17 (acceld)", "waiting for another acceld took 4s",
			"interrupted while waiting for another acceld, after 4s: nothing was changed",
		},
		{accel.Progress{Stage: accel.StageProve}, -time.Second, "proving, 0s", "proving took 0s", ""}, // another clock
	} {
		c.p.Since = now.Add(-c.ago)
		if got := working(c.p, now); got != c.working {
			t.Errorf("at work: %q, want %q", got, c.working)
		}
		if got := worked(c.p, now); got != c.worked {
			t.Errorf("ended: %q, want %q", got, c.worked)
		}
		if got := interruption(&c.p, now); c.cut != "" && got != c.cut {
			t.Errorf("interrupted: %q, want %q", got, c.cut)
		}
	}
	if got := interruption(nil, now); got != "interrupted: nothing was changed" {
		t.Error(got)
	}
	for _, s := range []accel.Stage{
		accel.StageWait, accel.StagePull, accel.StageCopy, accel.StageBuild,
		accel.StageFinish, accel.StagePush, accel.StageUnload, accel.StageLoad, accel.StageProve,
	} {
		if s.Words() == "" {
			t.Errorf("nobody says what %q is", s)
		}
	}
}

// still returns a view that draws only when the test calls draw.
func still(ctx context.Context, out io.Writer) *view {
	return &view{ctx: ctx, console: &console{out: out}, told: map[string]time.Time{}}
}

// TestProgressOnTerminal compares, step by step, what a real pseudoterminal shows with what it should show.
func TestProgressOnTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	x := newTerminal(t, 72, 8)
	v := still(t.Context(), x.slave)
	out := v.console.over(x.slave)
	since := time.Now()
	pull := accel.Progress{
		Kind: "qemu-edu", Stage: accel.StagePull,
		What: "registry.example/drivers/edu@sha256:0123456789abcdef0123456789abcdef", Since: since,
	}
	build := accel.Progress{
		Kind: "qemu-edu", Stage: accel.StageBuild, Step: 2, Steps: 3, What: "make",
		Since: since.Add(-90 * time.Second),
	}
	with := func(p accel.Progress, change func(*accel.Progress)) accel.Progress {
		change(&p)
		return p
	}
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"a pull begins", func() {
			v.note(pull)
			v.draw(since)
		}, "qemu-edu: pulling, 0s: registry.example/drivers/edu@sha256:0123456789"},
		{"bytes", func() {
			v.note(with(pull, func(p *accel.Progress) {
				p.Done, p.Total, p.Moved = 23_800_000, 95_000_000, since.Add(8*time.Second)
			}))
			v.draw(since.Add(8 * time.Second))
		}, "qemu-edu: pulling, 23.8 of 95.0 MB (25 %), 8s, ~24s left: registry.ex"},
		{"a line of the log goes above", func() {
			fmt.Fprintln(v.console, "level=INFO msg=hello")
		}, "level=INFO msg=hello"},
		{"and the line comes back", func() {
			v.draw(since.Add(9 * time.Second))
		}, "level=INFO msg=hello\nqemu-edu: pulling, 23.8 of 95.0 MB (25 %), 9s, ~27s left: registry.ex"},
		{"the terminal becomes narrower", func() {
			x.resize(t, 40, 8)
			v.draw(since.Add(9 * time.Second))
		}, "qemu-edu: pulling, 23.8 of 95.0 MB (2"},
		{"and wider", func() {
			x.resize(t, 72, 8)
			v.draw(since.Add(9 * time.Second))
		}, "qemu-edu: pulling, 23.8 of 95.0 MB (25 %), 9s, ~27s left: registry.ex"},
		{"the pull is over before anybody reads it", func() {
			v.note(with(pull, func(p *accel.Progress) { p.Ended = true }))
			v.draw(since)
		}, ""},
		{"a build begins", func() { v.note(build); v.draw(since) }, "qemu-edu: building, step 2 of 3, 1m30s: make"},
		{"commands, of as many as the last time", func() {
			build.Done, build.Total, build.Guessed, build.What = 120, 240, true, "CC [M] nvidia/nv-p2p.o"
			v.note(build)
			v.draw(since)
		}, "qemu-edu: building, step 2 of 3, 120 of ~240 commands (~50 %), 1m30s,"},
		{"another kind at the same time", func() {
			v.note(accel.Progress{
				Kind: "example-npu", Stage: accel.StageLoad, Total: 3, Done: 1, What: "npu",
				Since: since,
			})
			v.draw(since.Add(time.Second))
		}, "example-npu: loading, 1 of 3 modules, 1s: npu"},
		{"which is soon over", func() {
			v.note(accel.Progress{Kind: "example-npu", Stage: accel.StageLoad, Since: since, Ended: true})
			fmt.Fprintln(out, "example-npu: driver 2 present")
			v.draw(since)
		}, "example-npu: driver 2 present\nqemu-edu: building, step 2 of 3, 120 of ~240 commands (~50 %), 1m30s,"},
		{"a long build leaves a line", func() {
			v.note(with(build, func(p *accel.Progress) {
				p.Done, p.Total, p.Guessed, p.Ended, p.Since = 242, 242, false, true, time.Now().Add(-90*time.Second)
			}))
			v.draw(since)
		}, "example-npu: driver 2 present\nqemu-edu: building took 1m30s, 242 commands"},
	} {
		step.do()
		x.until(t, step.what+", want\n"+step.want, func(text string, _ map[string]bool) bool {
			return text == step.want
		})
	}
	v.note(pull)
	v.draw(since)
	v.console.show("")
	x.until(t, "nothing stays", func(text string, _ map[string]bool) bool {
		return strings.HasSuffix(text, "242 commands")
	})
}

// TestProgressInLog: a log gets a line when a stage has run for a while, one now and then, and one at the end. A
// quick stage gets none.
func TestProgressInLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		v := newView(t.Context(), &console{out: &log}, false)
		time.Sleep(frame / 2) // reports come between two updates
		p := accel.Progress{Kind: "qemu-edu", Stage: accel.StageCopy, Step: 1, Since: time.Now()}
		v.note(p)
		time.Sleep(time.Second)
		p.Ended = true
		v.note(p)
		p = accel.Progress{Kind: "qemu-edu", Stage: accel.StageBuild, Step: 2, Steps: 3, Since: time.Now()}
		for i := range 70 {
			p.Done, p.What = int64(i), fmt.Sprintf("CC [M] %d.o", i)
			v.note(p)
			time.Sleep(time.Second)
		}
		p.Ended, p.Total = true, p.Done
		v.note(p)
		v.close()
		want := `qemu-edu: building, step 2 of 3, 2 commands, 2s: CC [M] 2.o
qemu-edu: building, step 2 of 3, 32 commands, 32s: CC [M] 32.o
qemu-edu: building, step 2 of 3, 62 commands, 1m2s: CC [M] 62.o
qemu-edu: building took 1m10s, 69 commands
`
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		log.Reset()
		v = newView(t.Context(), &console{out: &log}, true)
		p.Ended, p.Since = false, time.Now()
		v.note(p)
		time.Sleep(time.Minute)
		p.Ended = true
		v.note(p)
		if v.close(); log.Len() > 0 {
			t.Errorf("where nobody wants to see it: %q", log.String())
		}
	})
}

// TestInterrupted: the error of an interrupted command says what was running, whatever the driver reported. Without
// an interrupt, the error is the driver's.
func TestInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		first, last func(v *view, cancel func())
		want        string
	}{
		"not at all":       {nil, nil, "the build was called off (BuildTimeout)"},
		"before any stage": {func(_ *view, cancel func()) { cancel() }, nil, "interrupted: nothing was changed"},
		"in a build": {
			func(v *view, cancel func()) {
				v.note(accel.Progress{Kind: "qemu-edu", Stage: accel.StageBuild, Since: time.Now()})
				time.Sleep(34 * time.Second)
				cancel()
			},
			func(v *view, _ func()) {
				v.note(accel.Progress{
					Kind: "qemu-edu", Stage: accel.StageBuild,
					Since: time.Now().Add(-34 * time.Second), Ended: true, Problem: "called off",
				})
				v.note(accel.Progress{
					Kind: "qemu-edu", Stage: accel.StageCopy, Since: time.Now(), Ended: true,
					Problem: "later",
				})
			},
			"qemu-edu: interrupted while building, after 34s: nothing was changed",
		},
		"in a stage that ends before anybody sees the signal": {
			func(v *view, cancel func()) {
				cancel()
				v.note(accel.Progress{Stage: accel.StagePush, Since: time.Now(), Ended: true, Problem: "canceled"})
			}, nil, "interrupted while pushing, after 0s: the driver is in the store but not published",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var log bytes.Buffer
				v := newView(ctx, &console{out: &log}, false)
				defer v.close()
				for _, f := range []func(*view, func()){c.first, c.last} {
					if f != nil {
						f(v, cancel)
						synctest.Wait()
					}
				}
				err := v.failed(accel.Problemf(accel.BuildTimeout, "the build was called off"))
				var e exit
				if !errors.As(err, &e) || e.code != exitFailed || strings.Split(err.Error(), "\n")[0] != c.want {
					t.Errorf("%v, want %q", err, c.want)
				}
				if err := v.failed(nil); err != nil {
					t.Error(err)
				}
				if err := v.waited(func() {}); (err != nil) != (ctx.Err() != nil) {
					t.Errorf("waited: %v", err)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	v := still(ctx, io.Discard)
	forever := make(chan struct{})
	defer close(forever)
	time.AfterFunc(10*time.Millisecond, cancel)
	if v.waited(func() { <-forever }) == nil {
		t.Error("what never ends was waited for")
	}
}

// TestFollowedProgress: a command that follows an upgrade in the agent shows on the terminal what the agent works on.
func TestFollowedProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	x := newTerminal(t, 80, 6)
	when := time.Now().UTC().Round(0)
	at := &agent.Board{}
	m := stood(accel.Status{State: accel.DriverMissing},
		accel.Have{Driver: accel.DriverHave{Upgrade: &accel.Upgrade{Phase: accel.UpgradePreparing}}}).Machine
	kind := sorted(m.Status)[0]
	def := accel.Definition{Kind: kind}
	def.Driver.Upgrade.Asked = when
	m.Want.Kinds = map[string]*accel.Definition{kind: &def}
	var mu sync.Mutex
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/machine", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(w).Encode(m)
	})
	mux.HandleFunc("/v1/progress", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(at.List())
	})
	socket := filepath.Join(t.TempDir(), "s")
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	a := &asked{Client: client.New(socket, filepath.Abs)}
	at.Note(accel.Progress{Kind: kind, Stage: accel.StagePull, Done: 1_000_000, Total: 2_000_000, Since: time.Now()})
	at.Note(accel.Progress{Kind: "another-kind", Stage: accel.StageBuild, Since: time.Now()})
	v := newView(t.Context(), &console{out: x.slave}, false)
	ended := make(chan error, 1)
	go func() { ended <- a.follow(v, v.console.over(x.slave), kind, driver.Request{Asked: when}) }()
	x.until(t, "the bytes", func(text string, _ map[string]bool) bool {
		return strings.Contains(text, kind+": preparing\n"+kind+": pulling, 1.0 of 2.0 MB (50 %), ")
	})
	at.Note(accel.Progress{Kind: kind, Stage: accel.StagePull, Ended: true})
	x.until(t, "the end of the pull", func(text string, _ map[string]bool) bool {
		return !strings.Contains(text, "pulling")
	})
	mu.Lock()
	m.Have[kind] = accel.Have{Driver: accel.DriverHave{Serves: true, Version: "2.0.0"}}
	m.Status[kind] = accel.Status{State: accel.Ready}
	mu.Unlock()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	v.close()
	x.until(t, "the end", func(text string, _ map[string]bool) bool {
		return text == kind+": preparing\n"+kind+": version 2.0.0 serves"
	})
}

// TestCommandInterrupted: a command that is interrupted while a registry sends ends at once, with one line that says
// so.
func TestCommandInterrupted(t *testing.T) {
	root := t.TempDir()
	if err := machines.Write(root, "eight-accelerators"); err != nil {
		t.Fatal(err)
	}
	const release = "5.14.0-570.99.1.el9_6.x86_64" // the machine's kernel
	for name, args := range map[string][]string{
		"preflight":       {"driver", "preflight", "qemu-edu", "--kernel", release},
		"preflight, json": {"driver", "preflight", "qemu-edu", "--kernel", release, "-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			json := strings.Contains(name, "json")
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if json { // long enough for a line in a log
					time.Sleep(worth + 2*frame)
				}
				cancel()
				<-r.Context().Done()
			}))
			defer server.Close()
			config := filepath.Join(t.TempDir(), "config.yaml")
			text := "prebuilt:\n  - {type: oci, image: " + strings.TrimPrefix(server.URL, "http://") + "/edu}\n"
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			cmd := New()
			cmd.SetArgs(append([]string{"--host-root", root, "--config", config}, args...))
			cmd.SetOut(&out)
			cmd.SetErr(&errs)
			began := time.Now()
			err := cmd.ExecuteContext(ctx)
			if err == nil || time.Since(began) > 10*time.Second {
				t.Fatalf("%v after %v: %s%s", err, time.Since(began), out.String(), errs.String())
			}
			if want := regexp.MustCompile(
				`^qemu-edu: interrupted while pulling, after [0-9]+s: nothing was changed$`); !json &&
				(!want.MatchString(err.Error()) || out.Len() > 0) {
				t.Errorf("%v, want %q, and on standard output %q", err, want, out.String())
			}
			if json && !strings.Contains(out.String(), `"ready": false`) {
				t.Error(out.String())
			}
			if json && errs.Len() > 0 {
				t.Errorf("on standard error: %q", errs.String())
			}
		})
	}
}
