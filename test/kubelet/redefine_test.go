package kubelet

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
)

// redefined is a definition after the n-th change: each change shares the devices differently.
func redefined(n int) *accel.Definition {
	return &accel.Definition{
		Kind: "example-thing", Resource: thing, Title: fmt.Sprint("change ", n),
		Sharing: &accel.Sharing{Replicas: []int{4, 1, 2}[n%3]},
	}
}

// TestRedefined: 200 changes of the configuration under a stream of short pods, none of which is refused. Beside it,
// as a figure, what it costs if each change ends the plugin and starts another one.
func TestRedefined(t *testing.T) {
	need(t)
	const changes = 200
	four := []accel.Accelerator{
		device("a", 0, accel.Healthy), device("b", 0, accel.Healthy), device("c", 1, accel.Healthy),
		device("d", 1, accel.Healthy),
	}
	redefine := func(p *plugin, n int) *plugin {
		p.Redefine(redefined(n))
		p.Update(four)
		return p
	}
	replace := func(p *plugin, n int) *plugin {
		p.stop()
		next := &plugin{Plugin: newPlugin(func(c *deviceplugin.Config) { c.Definition = redefined(n) })}
		next.Update(four)
		next.stop = runPlugin(next.Plugin)
		return next
	}
	for _, way := range []struct {
		name   string
		change func(*plugin, int) *plugin
		none   bool // no pod may be refused
	}{{"redefined", redefine, true}, {"replaced", replace, false}} {
		t.Run(way.name, func(t *testing.T) {
			pods := NewPods()
			k := startKubelet(t, pods)
			defer k.Stop()
			p := &plugin{Plugin: newPlugin()}
			p.Update(four)
			p.stop = runPlugin(p.Plugin)
			wait(t, "4 devices", func() bool { return k.Allocatable(thing) == 4 && p.State().Allocatable.Is(4) })
			var over atomic.Bool
			admitted, refused := 0, 0
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := 0; !over.Load(); i++ {
					name := fmt.Sprint("pod-", i)
					if err := k.Admit(name, thing, 1); err == nil {
						admitted++
					} else if refused++; way.none {
						t.Errorf("%s: %v", name, err)
					}
					pods.End(name)
				}
			}()
			for n := range changes {
				p = way.change(p, n)
				time.Sleep(20 * time.Millisecond)
			}
			over.Store(true)
			<-done
			defer p.stop()
			t.Logf("%d changes, %d pods admitted, %d refused", changes, admitted, refused)
			if admitted < changes {
				t.Errorf("only %d pods were admitted", admitted)
			}
		})
	}
}
