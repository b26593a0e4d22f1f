package replica

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/acceld/acceld/guard"
)

// TestPanicInAPart: a part of the controller that panics is a reason in the metrics until it has worked for a while.
// The others go on.
func TestPanicInAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &Replica{log: slog.New(slog.DiscardHandler)}
		o.faults.log = o.log
		ctx, end := context.WithCancel(guard.Report(t.Context(), o.faults.note))
		runs, others := 0, 0
		ended := make(chan error)
		go func() {
			ended <- guard.Together(ctx, o.kept("cards", func(ctx context.Context) error {
				if runs++; runs == 1 {
					panic("an error of ours")
				}
				<-ctx.Done()
				return nil
			}), o.kept("policies", func(ctx context.Context) error { others++; <-ctx.Done(); return nil }))
		}()
		registry := prometheus.NewRegistry()
		registry.MustRegister(&o.faults)
		shown := func() (parts []string) {
			synctest.Wait()
			all, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range all {
				for _, m := range family.GetMetric() {
					parts = append(parts, m.GetLabel()[0].GetValue())
				}
			}
			return parts
		}
		if got := shown(); len(got) != 1 || got[0] != "cards" {
			t.Errorf("the metrics show %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := shown(); len(got) > 0 || runs != 2 || others != 1 {
			t.Errorf("at last %q, after %d runs, %d of the other one", got, runs, others)
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
