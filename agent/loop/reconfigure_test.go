package loop

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestRedefined: a change of the configuration keeps the plugin, and no device is withheld meanwhile, unless the
// resource gets another name.
func TestRedefined(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*accel.Definition)
		another bool
	}{
		"sharing":             {change: func(d *accel.Definition) { d.Sharing = &accel.Sharing{Replicas: 4} }},
		"what containers get": {change: func(d *accel.Definition) { d.Container.Env = []string{"A=b"} }},
		"the title":           {change: func(d *accel.Definition) { d.Title = "another" }},
		"partitions":          {change: func(d *accel.Definition) { d.Partitions = &accel.Partitions{Find: "virtfn*"} }},
		"the name": {
			change:  func(d *accel.Definition) { d.Sharing = &accel.Sharing{Replicas: 4, Rename: true} },
			another: true,
		},
		"the names of partitions": {
			change:  func(d *accel.Definition) { d.Partitions = &accel.Partitions{Rename: "example.com/{{.Profile}}"} },
			another: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := served(accel.UpgradePolicy{})
			run(t, w, func(l *Loop) {
				started, plugin := 0, l.o.Effects.Plugin
				l.o.Effects.Plugin = func(ctx context.Context, def *accel.Definition) Plugin {
					started++
					return plugin(ctx, def)
				}
				want := l.Machine().Want
				changed := *want.Kinds["k-x"]
				tc.change(&changed)
				want.Kinds = map[string]*accel.Definition{"k-x": &changed}
				all := w.offers()
				w.set(func() { w.fewest = all })
				l.Configure(want)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if tc.another != (started == 1) || tc.another == (w.redefined == &changed) {
					t.Errorf("%d plugins started, redefined: %v", started, w.redefined)
				}
				if w.fewest != all {
					t.Errorf("%d of %d devices were offered", w.fewest, all)
				}
			})
		})
	}
}
