package kubelet

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
)

// Devices flap, vanish and come back while pods are admitted and end: a kubelet whose list loses a device under an
// Allocate panics, which ends this process. The plugin's clock runs a thousand times faster, so that its tombstones are
// dropped after 0.3 s.
func TestStorm(t *testing.T) {
	need(t)
	pods := NewPods()
	k := startKubelet(t, pods)
	defer k.Stop()
	t0 := time.Now()
	p := newPlugin(func(c *deviceplugin.Config) {
		c.Now = func() time.Time { return t0.Add(1000 * time.Since(t0)) }
	})
	all := func() (list []accel.Accelerator) {
		for i := range 8 {
			list = append(list, device(fmt.Sprintf("0000:0%d:00.0", i), i/4, accel.Healthy))
		}
		return list
	}
	p.Update(all())
	stop := runPlugin(p)
	defer stop()
	wait(t, "8 devices", func() bool { return k.Allocatable(thing) == 8 })

	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			var list []accel.Accelerator
			for _, a := range all() {
				switch rand.N(6) {
				case 0: // vanished
				case 1:
					a.Health.State = accel.Unhealthy
					list = append(list, a)
				default:
					list = append(list, a)
				}
			}
			p.Update(list)
			time.Sleep(time.Duration(rand.N(int(2 * time.Millisecond))))
		}
	})
	admitted, refused := 0, map[string]int{}
	for i := 0; time.Since(t0) < time.Duration(*restarts)*50*time.Millisecond; i++ {
		name := fmt.Sprint("pod-", i)
		if err := k.Admit(name, thing, 1+i%4); err == nil {
			admitted++
			opts, err := k.Injected(name)
			if err != nil || len(opts.CDIDevices) != 1+i%4 {
				t.Fatalf("%s got %+v: %v", name, opts, err)
			}
		} else {
			refused[kind(err)]++
		}
		pods.End(name)
	}
	close(over)
	wg.Wait()
	t.Logf("%d pods admitted; refused: %v", admitted, refused)
	if admitted == 0 || refused["other"] > 0 {
		t.Error("no pod was admitted, or one was refused for a reason that is none")
	}
	p.Update(all())
	wait(t, "8 devices after the storm", func() bool {
		return k.Allocatable(thing) == 8 && p.State().Allocatable.Is(8)
	})
	p.Update(all()[:3])
	wait(t, "the tombstones are dropped", func() bool {
		return k.Allocatable(thing) == 3 && p.State().Allocatable.Is(3) && p.Problem() == nil
	})
}

// kind sorts the refusals that a flapping list explains.
func kind(err error) string {
	for _, known := range []string{
		"requested number of devices unavailable", "no healthy devices present",
		"cannot allocate device",
	} {
		if strings.Contains(err.Error(), known) {
			return known
		}
	}
	fmt.Println("refused:", err)
	return "other"
}

// A device that vanished under a pod is unhealthy in the pod's status, also after restarts of the plugin and the
// kubelet, and until the pod ends.
func TestVanishedUnderPod(t *testing.T) {
	need(t)
	pods := NewPods()
	k := startKubelet(t, pods)
	defer func() { k.Stop() }()
	p := newPlugin()
	p.Update(two())
	stop := runPlugin(p)
	wait(t, "2 devices", func() bool { return k.Allocatable(thing) == 2 })
	if err := k.Admit("pod", thing, 2); err != nil {
		t.Fatal(err)
	}
	held := func() bool {
		h, err := p.Holders(t.Context())
		return err == nil && h["b"] == (deviceplugin.PodRef{Namespace: "test", Pod: "pod", Container: "main"})
	}
	wait(t, "the holder", held)
	sick := func() bool { h := k.Health("pod"); return h["a"] == "Healthy" && h["b"] == "Unhealthy" }
	p.Update(two()[:1])
	wait(t, "unhealthy in the pod's status", sick)

	stop()
	p = newPlugin()
	p.Update(two()[:1])
	stop = runPlugin(p)
	defer func() { stop() }()
	wait(t, "unhealthy after a restart of the plugin", sick)

	k.Stop()
	k = startKubelet(t, pods)
	wait(t, "unhealthy after a restart of the kubelet", sick)
	if k.Allocatable(thing) != 1 {
		t.Errorf("allocatable = %d, want 1", k.Allocatable(thing))
	}
	p.Update(two())
	wait(t, "healthy when it is back", func() bool {
		return k.Health("pod")["b"] == "Healthy" && k.Allocatable(thing) == 2
	})
}

func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}
