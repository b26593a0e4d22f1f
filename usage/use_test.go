package usage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// file is an open file of a node, as the driver of the test device prints it.
func file(node, device string, id, ns, bytes int) host.OpenFile {
	return host.OpenFile{Node: node, Info: fmt.Sprintf("pos:\t0\nnpu-driver:\tnpu\nnpu-client-id:\t%d\nnpu-pdev:\t%s\n"+
		"npu-resident-hbm:\t%d\nnpu-resident-host:\t4096\nnpu-engine-core:\t%d ns\n", id, device, bytes, ns)}
}

const sec = int(time.Second)

// telling is a bed whose driver tells what each open file uses.
func (b *bed) telling() {
	b.m.Want.Kinds["npu"] = &accel.Definition{Kind: "npu", Usage: &accel.Usage{Prefix: "npu-", Memory: []string{"hbm"}}}
}

// uses is what is known of the first device, a line for each user.
func (b *bed) uses() string {
	b.publish()
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.last.Have["npu"].Accelerators[0].Use
	if h == nil {
		return "nothing"
	}
	lines := []string{h.Unknown}
	for _, u := range h.Users {
		cells := []string{u.Who(), fmt.Sprint(u.Processes), u.MemoryText(), u.EngineText(), u.BusyText()}
		lines = append(lines, strings.Join(cells, "|"))
	}
	return strings.Trim(strings.Join(append(lines, h.Rest()), "\n"), "\n")
}

func (b *bed) is(t *testing.T, want string) {
	t.Helper()
	if got := b.uses(); got != want {
		t.Errorf("after %s:\n%s\nwant\n%s", time.Since(b.began), got, want)
	}
}

const container = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"

// TestUse: what the open files of a container have used is added up, and does not fall when they close. There is no
// kubelet.
func TestUse(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		pod := func(pid int, files ...host.OpenFile) host.Opener {
			o := opener(pid, time.Duration(pid), podA, "/dev/npu0")
			o.Container, o.Files = container, files
			return o
		}
		b.set(func() {
			b.telling()
			b.m.Want.Kubernetes = false
			b.containers = map[string]string{container: "main"}
			b.openers = []host.Opener{
				pod(7, file("/dev/npu0", device0, 1, 2*sec, 100), file("/dev/npu0", device0, 1, 2*sec, 100)),
				pod(8, file("/dev/npu0", device0, 1, 2*sec, 100), file("/dev/npu0", device0, 2, sec/2, 1948)),
				{PID: 9, Unit: "x.service", Nodes: []string{"/dev/npu0"}, Files: []host.OpenFile{file("/dev/npu0", device0, 3, 0, 0)}},
				{PID: 10, Unit: "y.service", Nodes: []string{"/dev/npu0"}, Files: []host.OpenFile{file("/dev/npu0", device1, 4, sec, 1)}},
				{PID: 11, Unit: "z.service", Nodes: []string{"/dev/npu0"}, Files: []host.OpenFile{{Node: "/dev/npu0", Info: "pos: 0"}}},
			}
		})
		b.is(t, "nothing")
		after(confirm + time.Second)
		b.is(t, "team/a (main)|2|2 KiB|core 2.5s|\nx.service|1|0 B|core 0s|")
		if b.first() != nil {
			t.Error("somebody is named without a kubelet")
		}
		b.set(func() {
			// The second file was closed, another one opened, and the first goes on in one process.
			b.openers = []host.Opener{
				pod(8, file("/dev/npu0", device0, 1, 2*sec+15*sec, 100), file("/dev/npu0", device0, 5, 3*sec, 200)),
				{PID: 9, Unit: "x.service", Nodes: []string{"/dev/npu0"}, Files: []host.OpenFile{file("/dev/npu0", device0, 3, sec, 0)}},
			}
		})
		after(every)
		b.is(t, "team/a (main)|1|300 B|core 20.5s|60 %\nx.service|1|0 B|core 1s|3 %")
		b.set(func() { b.openers = nil })
		after(every)
		b.is(t, "") // nobody, and the sum of all outside pods stays
		b.set(func() { b.openers = []host.Opener{pod(12, file("/dev/npu0", device0, 6, sec, 1))} })
		after(every)
		b.is(t, "team/a (main)|1|1 B|core 21.5s|3 %")
		if h := b.last.Have["npu"].Accelerators[0].Use; math.Abs(h.Outside["core"]-1) > 1e-9 {
			t.Errorf("outside pods %+v", h.Outside)
		}
		b.set(func() { b.openers, b.unread = nil, errors.New("no processes") })
		after(every)
		b.is(t, "no processes")
		b.set(func() { b.unread = nil })
		after(keep + 2*every)
		b.set(func() { b.openers = []host.Opener{pod(13, file("/dev/npu0", device0, 7, sec, 1))} })
		after(every)
		b.is(t, "team/a (main)|1|1 B|core 1s|3 %")
	})
}

// TestUseGoesOn: another agent goes on where this one was; what is damaged is left out.
func TestUseGoesOn(t *testing.T) {
	h, err := host.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const name = "/run/acceld/usage.json"
	life := func(seconds int, want string) {
		synctest.Test(t, func(t *testing.T) {
			b := newBed()
			b.telling()
			b.openers = []host.Opener{{
				PID: 9, Unit: "x.service", Nodes: []string{"/dev/npu0"},
				Files: []host.OpenFile{file("/dev/npu0", device0, seconds, seconds*sec, 0)},
			}}
			b.o.Host, b.o.File = h, name
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- b.Run(ctx) }()
			after(confirm + time.Second)
			b.is(t, want)
			cancel()
			<-ended
		})
	}
	life(2, "x.service|1|0 B|core 2s|")
	life(3, "x.service|1|0 B|core 5s|30 %") // the clock was set back, as far as it can tell
	for _, text := range []string{
		"{", `{"totals":[{"device":"d","key":"k","engines":{"core":-1}}]}`,
		`{"totals":[{"device":"d","key":"k"}]}`, `{"outside":{"d":{"\u001b":1}}}`,
	} {
		if err := h.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		life(3, "x.service|1|0 B|core 3s|")
	}
}

// TestUseUnread: of what cannot be read it is said how much there is.
func TestUseUnread(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.set(func() {
			b.telling()
			bad := file("/dev/npu0", device0, 2, 1, 1)
			bad.Info = strings.Replace(bad.Info, " ns", " hours", 1)
			b.openers = []host.Opener{{
				PID: 9, Unit: "x.service", Nodes: []string{"/dev/npu0"},
				Files: []host.OpenFile{bad, {Node: "/dev/npu0", Err: errors.New("it hangs")}},
			}}
		})
		after(confirm + time.Second)
		b.is(t, "2 open files whose use cannot be read")
	})
}

// TestUseOfMany: the list of users is bounded, and says how many it lacks.
func TestUseOfMany(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.set(func() {
			b.telling()
			for i := range accel.MaxUsers + 7 {
				b.openers = append(b.openers, host.Opener{
					PID: i + 1, Unit: fmt.Sprintf("%d.service", i), Nodes: []string{"/dev/npu0"},
					Files: []host.OpenFile{file("/dev/npu0", device0, i+1, 0, 1)},
				})
			}
		})
		after(confirm + time.Second)
		if got := b.uses(); strings.Count(got, "service") != accel.MaxUsers || !strings.HasSuffix(got, "\nand 7 more") {
			t.Error(got)
		}
	})
}

// TestUseByProgram: what a probe program says of a process counts if the process has a node of the device open, and
// then nothing else does.
func TestUseByProgram(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		said := func(pid int, seconds float64) accel.ProbeProcess {
			return accel.ProbeProcess{
				PID: pid, MemoryBytes: accel.Known[int64](3 << 30), EngineSeconds: map[string]float64{"compute": seconds},
			}
		}
		b.set(func() {
			b.m.Want.Kubernetes = false
			b.openers = []host.Opener{opener(7, 1, podA, "/dev/npu0"), opener(8, 1, podA, "/dev/npu1"), opener(9, 1, "", "/dev/npu0")}
			b.openers[2].Container = container
		})
		after(10 * every)
		b.mu.Lock()
		looks := len(b.looks)
		b.mu.Unlock()
		b.is(t, "nothing")
		if looks > 0 {
			t.Errorf("%d looks although nothing tells what is used", looks)
		}
		b.set(func() {
			b.processes = map[string][]accel.ProbeProcess{device0: {said(7, 90), said(8, 1), said(4242, 1), {PID: 9}}}
		})
		b.publish() // it follows the machine
		after(confirm + time.Second)
		b.is(t, "team/a|1|3 GiB|compute 1m30s|\ncontainer 0f1e2d3c4b5a|1|||")
		b.set(func() { b.processes[device0] = []accel.ProbeProcess{said(7, 105)} })
		after(every)
		b.is(t, "team/a|1|3 GiB|compute 1m45s|50 %")
	})
}

// TestCycles: an engine that is told in cycles out of all cycles has worked for its share of the time.
func TestCycles(t *testing.T) {
	var c counter
	count := func(at time.Duration, busy, total uint64) accel.User {
		h := c.count(time.Unix(1000, 0).Add(at), []sample{{
			client: client{id: "1", engines: map[string]engine{"rcs": {busy: busy, total: total}}}, device: "d", key: "host x",
			user: accel.User{Unit: "x"},
		}}, func(sample) (uint64, bool) { return 0, false })
		return h["d"].Users[0]
	}
	if u := count(0, 500, 1000); u.EngineSeconds["rcs"] != 0 || u.Busy.Known || u.MemoryBytes.Known {
		t.Errorf("at first %+v", u)
	}
	if u := count(30*time.Second, 750, 2000); u.EngineSeconds["rcs"] != 7.5 || !u.Busy.Is(0.25) {
		t.Errorf("then %+v", u)
	}
	if u := count(60*time.Second, 10, 20); u.EngineSeconds["rcs"] != 7.5 { // its driver was loaded again
		t.Errorf("in the end %+v", u)
	}
}

// TestEngines: the engines of a user are bounded, however many clients it has had.
func TestEngines(t *testing.T) {
	var c counter
	for i := range 3 * accel.MaxEngines {
		c.count(time.Unix(int64(i), 0), []sample{{
			client: client{id: fmt.Sprint(i), engines: map[string]engine{fmt.Sprintf("e%d", i): {busy: 1, timed: true}}},
			device: "d", key: "host x", user: accel.User{Unit: "x"},
		}}, func(sample) (uint64, bool) { return 0, false })
	}
	for _, engines := range []map[string]float64{c.outside["d"], c.totals[userID{"d", "host x"}].engines} {
		if len(engines) != accel.MaxEngines {
			t.Errorf("%d engines: %v", len(engines), slices.Sorted(maps.Keys(engines)))
		}
	}
}
