package probe

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestProcesses: what a program says of processes is kept by device, as long as it says anything, and without what no
// process can be.
func TestProcesses(t *testing.T) {
	p, def := idle(&[]accel.ProbeFault{})
	introduced := false
	say := func(line string) {
		t.Helper()
		if err := p.take(def, []string{one}, []byte(line), &introduced); err != nil {
			t.Fatal(err)
		}
	}
	say(`{"hello":{"protocol":1,"program":"watcher"}}`)
	say(`{"snapshot":{"devices":[{"id":"` + one + `"}]}}`)
	if got := p.book.processesNow(); len(got) > 0 {
		t.Errorf("nothing was said of processes: %+v", got)
	}
	say(`{"processes":{"` + one + `":[{"pid":7,"memoryBytes":1024,"engineSeconds":{"compute":1.5,"Bad Name":1,"x":-1}},` +
		`{"pid":7,"memoryBytes":1},{"pid":0},{"pid":8,"memoryBytes":-1},{"pid":9}],"` + two + `":[]}}`)
	want := map[string][]accel.ProbeProcess{one: {
		{PID: 7, MemoryBytes: accel.Known[int64](1024), EngineSeconds: map[string]float64{"compute": 1.5}},
		{PID: 8, EngineSeconds: map[string]float64{}},
		{PID: 9, EngineSeconds: map[string]float64{}},
	}, two: {}}
	if diff := cmp.Diff(want, p.book.processesNow()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	say(`{"processes":{"` + one + `":[]}}`)
	if got := p.book.processesNow(); len(got) != 2 || len(got[one]) > 0 {
		t.Errorf("they have ended: %+v", got)
	}
	p.book.heard = p.book.heard.Add(-usual)
	if got := p.book.processesNow(); got != nil {
		t.Errorf("the program has fallen silent: %+v", got)
	}
}

// TestProcessesBounded: a program that never stops does not fill the memory.
func TestProcessesBounded(t *testing.T) {
	var list []accel.ProbeProcess
	engines := map[string]float64{"nan": math.NaN(), "inf": math.Inf(1)}
	for i := range 2 * accel.MaxEngines {
		engines[fmt.Sprintf("e%d", i)] = 1
	}
	for i := range maxProcesses + 10 {
		list = append(list, accel.ProbeProcess{PID: i + 1, EngineSeconds: engines})
	}
	got := processes(list)
	if len(got) != maxProcesses || len(got[0].EngineSeconds) != accel.MaxEngines {
		t.Errorf("%d processes with %d engines", len(got), len(got[0].EngineSeconds))
	}
	var b book
	for i := range maxDevices + 10 {
		b.users(map[string][]accel.ProbeProcess{fmt.Sprint(i): {}})
	}
	if len(b.processes) != maxDevices {
		t.Errorf("%d devices", len(b.processes))
	}
}
