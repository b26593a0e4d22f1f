package agent

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// A kernel is checked once, when its packages are installed. One without a driver is checked again when something
// changes.
func TestKernelPreflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernels := []string{"6.1.0-40", "6.1.0-47"}
		changes := make(chan string)
		var asked []string
		var told map[string]accel.Readiness
		answer := accel.Problemf(accel.HeadersMissing, "no headers")
		m := accel.Machine{Facts: accel.Facts{Kernel: accel.Kernel{Release: "6.1.0-47"}}}
		m.Want.Kinds = map[string]*accel.Definition{"k-x": {Kind: "k-x"}, "k-y": {Kind: "k-y"}}
		m.Have = map[string]accel.Have{"k-x": {Driver: accel.DriverHave{Serves: true}}}
		a := &kernelPreflight{
			machine: func() accel.Machine { return m }, installed: func() []string { return kernels },
			preflight: func(_ context.Context, def *accel.Definition, _ accel.Facts, release string) accel.Readiness {
				asked = append(asked, def.Kind+" "+release)
				return accel.Readiness{Problem: answer}
			},
			tell:  func(_ context.Context, _ string, next map[string]accel.Readiness) { told = next },
			watch: func(context.Context, ...string) (<-chan string, error) { return changes, nil },
			log:   slog.New(slog.DiscardHandler), news: make(chan struct{}, 1),
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = a.run(ctx) }()
		defer cancel()
		synctest.Wait()
		if len(asked) != 0 {
			t.Errorf("asked for %v: there is no newer kernel", asked)
		}
		kernels = append(kernels, "6.1.0-56")
		for range 5 { // the packages of the kernel come one after the other
			changes <- "/lib/modules/6.1.0-56"
			time.Sleep(installing / 2)
		}
		time.Sleep(installing)
		synctest.Wait()
		if diff := cmp.Diff([]string{"k-x 6.1.0-56"}, asked); diff != "" || told["6.1.0-56"].Problem == nil {
			t.Fatalf("%s %+v", diff, told)
		}
		answer = nil
		changes <- "/lib/modules/6.1.0-56/build"
		time.Sleep(2 * installing)
		synctest.Wait()
		a.wake() // it has its answer already
		synctest.Wait()
		if diff := cmp.Diff([]string{"k-x 6.1.0-56", "k-x 6.1.0-56"}, asked); diff != "" ||
			told["6.1.0-56"].Problem != nil {
			t.Fatalf("%s %+v", diff, told)
		}
		m.Want.Kinds = map[string]*accel.Definition{"k-x": {Kind: "k-x", Driver: accel.DriverDefinition{Version: "2"}}}
		a.wake() // the desired driver has changed
		synctest.Wait()
		if len(asked) != 3 {
			t.Errorf("%v", asked)
		}
		kernels = kernels[:2]
		changes <- "/lib/modules/6.1.0-56"
		time.Sleep(2 * installing)
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("a kernel that is gone is shown: %+v", told)
		}
	})
}
