package driver

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

func TestProve(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := ko.Definition()
	def.Check.Write = "3628800" // a plain file gives back what was written
	m.Write("/sys/bus/pci/devices/"+ko.Device+"/factorial", "")
	if sentence, problem := d.Prove(t.Context(), def, m.accs()); problem != nil || sentence != def.Check.Sentence {
		t.Fatal(sentence, problem)
	}
	def.Check.Want = "7"
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckFailed || !strings.Contains(problem.Message, `gave "3628800" instead of "7"`) {
		t.Fatal(problem)
	}
	def.Check.File = "nothing"
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckFailed {
		t.Fatal(problem)
	}
	sick := m.accs()
	sick[0].Health.State = accel.Unhealthy
	if _, problem := d.Prove(t.Context(), def, sick); problem == nil || problem.Reason != accel.DeviceUnhealthy {
		t.Fatal(problem)
	}
	def.Check = nil
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem != nil {
		t.Fatal(problem)
	}
}

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Driver{asked: map[string]chan error{}}
		hang := make(chan struct{})
		start := time.Now()
		var runs atomic.Int32
		operation := func() error { runs.Add(1); <-hang; return nil }
		if err := d.within(t.Context(), "x", operation); !errors.Is(err, errNoAnswer) || time.Since(start) != deviceDeadline {
			t.Error(err, time.Since(start))
		}
		for range 3 { // a device that hangs costs one thread, not one for each question
			if err := d.within(t.Context(), "x", operation); !errors.Is(err, errNoAnswer) || time.Since(start) != deviceDeadline {
				t.Error(err)
			}
		}
		if runs.Load() != 1 {
			t.Error(runs.Load())
		}
		if err := d.within(t.Context(), "y", func() error { return nil }); err != nil {
			t.Error(err)
		}
		close(hang)
		synctest.Wait()
		if err := d.within(t.Context(), "x", operation); err != nil || runs.Load() != 2 {
			t.Error(err, runs.Load())
		}
	})
}
