package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/probe"
)

// resettableHave is a kind with two devices of which the kubelet gives out n.
func resettableHave(n int, healths ...accel.Health) accel.Have {
	have := accel.Have{Plugin: accel.PluginHave{Registered: true, Allocatable: accel.Known(n)}}
	for i, h := range healths {
		have.Accelerators = append(have.Accelerators, accel.Accelerator{ID: "0000:0" + string(rune('1'+i)) + ":00.0", Bound: "edu", Health: h})
	}
	return have
}

// TestHeldForReset: while a device is reset everybody is told that it is not to be had, and nothing else of it changes; the
// other device, and the driver of the kind, are as they were. When the lock goes, it is over.
func TestHeldForReset(t *testing.T) {
	m := hosttest.New(t)
	m.Dir("/run/acceld")
	edu := hosttest.Driver{Module: "edu", IDs: []string{"1234:11e8"}, Version: "1.0.0", Node: "accelerator_edu/edu%d"}
	m.Modprobe(edu)
	for _, id := range []string{"0000:01:00.0", "0000:02:00.0"} {
		m.AddPCI(accel.PCIDevice{Address: id, Class: "00ff00", Vendor: "1234", Device: "11e8"})
	}
	a, machines := holding(t, m)
	shown := func(what string, want ...string) {
		t.Helper()
		var got []string
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			have := machines().Have["qemu-edu"]
			got = nil
			for _, x := range have.Accelerators {
				got = append(got, strings.Join([]string{x.ID, x.Bound, string(x.Health.State), string(x.Health.Reason), nodes(x)}, " "))
			}
			if cmp.Equal(want, got) && have.Driver.Right {
				return
			}
		}
		t.Fatalf("%s:\n%s", what, cmp.Diff(want, got))
	}
	both := []string{"0000:01:00.0 edu healthy  /dev/edu0", "0000:02:00.0 edu healthy  /dev/edu1"}
	shown("at first", both...)
	entered, leave := make(chan struct{}), make(chan struct{})
	d := driver.New(m.Host, driver.Options{Ledger: a.ledger})
	def := a.defs["qemu-edu"]
	facts := accel.Facts{PCI: []accel.PCIDevice{{Address: "0000:01:00.0"}}}
	m.SetAttribute("0000:01:00.0", "reset", "")
	m.SetAttribute("0000:01:00.0", "reset_method", "flr")
	target := driver.ResetTarget{Def: def, Device: accel.Accelerator{ID: "0000:01:00.0"}}
	done := make(chan *accel.Problem)
	go func() {
		done <- d.Reset(t.Context(), facts, []driver.ResetTarget{target}, func(context.Context) *accel.Problem {
			close(entered)
			<-leave
			return accel.Problemf(accel.ProbeUnanswered, "that is enough")
		})
	}()
	<-entered
	shown("announced", "0000:01:00.0 edu unhealthy BeingReset /dev/edu0", both[1])
	m.Unbind("0000:01:00.0")
	a.loop.Wake(false)
	time.Sleep(50 * time.Millisecond)
	shown("its driver is unbound", "0000:01:00.0 edu unhealthy BeingReset /dev/edu0", both[1])
	m.Bind("0000:01:00.0", "edu")
	close(leave)
	if problem := <-done; problem == nil || problem.Reason != accel.ProbeUnanswered {
		t.Error(problem)
	}
	shown("at last", "0000:01:00.0 edu healthy  /dev/edu2", both[1])
	// A command that was killed has left its words in the file, and no lock: its end is an event, and the words are none.
	release, err := m.Host.TryLock(driver.ResetSign(), `{"pid": 1, "resets": ["0000:02:00.0"]}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Host.WriteAttribute(driver.ResetSign(), `{"pid": 1, "resets": ["0000:02:00.0"]}`); err != nil {
		t.Fatal(err)
	}
	shown("another", "0000:01:00.0 edu healthy  /dev/edu2", "0000:02:00.0 edu unhealthy BeingReset /dev/edu1")
	m.Unbind("0000:02:00.0")
	release()
	for until := time.Now().Add(20 * time.Second); machines().Have["qemu-edu"].Driver.Right; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("that a driver is missing is still no news")
		}
	}
}

// holding is an agent on a machine that looks at it and changes nothing, and holds devices back.
func holding(t *testing.T, m *hosttest.Machine) (*running, func() accel.Machine) {
	t.Helper()
	c := &common{hostRoot: m.Host.Root(), config: filepath.Join(t.TempDir(), "config.yaml")}
	p, problem := c.open()
	if problem != nil {
		t.Fatal(problem)
	}
	p.log = slog.New(slog.DiscardHandler)
	p.defs = map[string]*accel.Definition{"qemu-edu": p.defs["qemu-edu"]}
	a := &running{parts: p, driver: p.driver(nil), plugins: map[string]*serving{}}
	a.holding = a.follower()
	probes := a.probes()
	probes.Runtime = func(*accel.Definition, []accel.Accelerator, accel.Want) (accel.RuntimeHave, *accel.Problem) {
		return accel.RuntimeHave{}, nil
	}
	a.loop = agent.NewLoop(agent.Options{
		Want: accel.Want{Kinds: p.defs}, Log: p.log, SampleEvery: time.Minute, Resync: time.Minute, Probes: probes,
		Effects: agent.Effects{
			Ensure: func(context.Context, *accel.Definition, accel.Facts, []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
				return accel.DriverHave{}, accel.Problemf(accel.ProbeFailed, "not here")
			},
			Prove: func(context.Context, *accel.Definition, []accel.Accelerator) (string, *accel.Problem) {
				return "well", nil
			},
			Apply: func(*accel.Definition, []accel.Accelerator, accel.Want) (accel.RuntimeHave, *accel.Problem) {
				return accel.RuntimeHave{}, nil
			},
		},
	})
	a.programs = probe.New(probe.Options{Host: m.Host, Log: p.log})
	ctx, cancel := context.WithCancel(t.Context())
	if err := a.followResets(ctx); err != nil {
		t.Fatal(err)
	}
	a.group.Go(func() { _ = a.loop.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		a.group.Wait()
	})
	return a, a.loop.Machine
}

// TestResetReady: the device is touched when the agent says that it gives it to nobody, the kubelet has heard so, and no pod has it.
func TestResetReady(t *testing.T) {
	well, out := accel.Health{State: accel.Healthy}, accel.Health{State: accel.Unhealthy, Reason: accel.BeingReset}
	ill := accel.Health{State: accel.Unhealthy, Reason: accel.DeviceFault}
	for _, c := range []struct {
		name       string
		have       accel.Have
		kubernetes bool
		want       bool
	}{
		{"still given out", resettableHave(2, well, well), true, false},
		{"ill, and the agent has not heard", resettableHave(1, ill, well), true, false},
		{"held back, and the kubelet has not heard", resettableHave(2, out, well), true, false},
		{"held back, and the kubelet has heard", resettableHave(1, out, well), true, true},
		{"without a kubelet", resettableHave(-1, out, well), false, true},
		{"not known to the agent", accel.Have{}, true, true},
	} {
		m := accel.Machine{Want: accel.Want{Kubernetes: c.kubernetes}, Have: map[string]accel.Have{"qemu-edu": c.have}}
		target := driver.ResetTarget{Def: &accel.Definition{Kind: "qemu-edu"}, Device: accel.Accelerator{ID: "0000:01:00.0"}}
		if got := (&reset{}).isOut(m, target); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestResetAsksAgent: a pod that was given the device just before is found; without a word of the kubelet nothing is touched.
func TestResetAsksAgent(t *testing.T) {
	for _, c := range []struct {
		name, told, holders string
		reason              accel.Reason
		says                string
	}{
		{"nobody has it", "Fri, 02 Jan 2026 03:04:05 GMT", "{}", "", ""},
		{"a pod has it", "Fri, 02 Jan 2026 03:04:05 GMT", `{"0000:01:00.0": [{"namespace": "ml", "pod": "train-0"}]}`, accel.InUse, "ml/train-0"},
		{"a pod has a part of it", "Fri, 02 Jan 2026 03:04:05 GMT", `{"0000:01:00.0-half-p0": [{"namespace": "ml", "pod": "train-1"}]}`, accel.InUse, "ml/train-1"},
		{"the kubelet has not spoken", "", "{}", accel.ProbeUnanswered, "has not said"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &reset{agent: answering(t, c.told, c.holders, accel.Machine{
				Taken: time.Now(), Want: accel.Want{Kubernetes: true},
				Have: map[string]accel.Have{"qemu-edu": resettableHave(1, accel.Health{State: accel.Unhealthy, Reason: accel.BeingReset}, accel.Health{State: accel.Healthy})},
			}), targets: []driver.ResetTarget{{
				Def:    &accel.Definition{Kind: "qemu-edu"},
				Device: accel.Accelerator{ID: "0000:01:00.0", Partitions: []accel.Accelerator{{ID: "0000:01:00.0-half-p0", Parent: "0000:01:00.0"}}},
			}}}
			problem := r.ready(t.Context())
			switch {
			case problem == nil && c.reason == "":
			case problem == nil || problem.Reason != c.reason || !strings.Contains(problem.Message, c.says):
				t.Errorf("%v, want %s %q", problem, c.reason, c.says)
			}
		})
	}
}

// answering is an agent that says always the same.
func answering(t *testing.T, told, holders string, m accel.Machine) *asked {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/holders" {
			if told != "" {
				w.Header().Set("Last-Modified", told)
			}
			_, _ = w.Write([]byte(holders))
			return
		}
		_ = json.NewEncoder(w).Encode(m)
	}))
	t.Cleanup(server.Close)
	var d net.Dialer
	return &asked{socket: "test", client: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
	}}}}
}
