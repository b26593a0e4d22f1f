package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/nvml"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// watched is a node whose two devices a program watches, with the script that its library plays.
type watched struct {
	*testing.T
	n      *bed.Node
	script nvml.Script
	ids    []string
}

// TestProbe is the true acceld-nvml on a node, with a library that plays GPUs at the addresses of its two devices. Its
// parts build on each other.
func TestProbe(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\nsampleEvery: 2s\n"))
	stage.Check(t, stage.Credentials(t.Context(), n))
	for _, version := range []string{stage.Version2, stage.Version} {
		stage.Check(t, s.SourceOf(t.Context(), g, version))
		stage.Check(t, s.Store(t.Context(), g, version))
	}
	w := &watched{T: t, n: n, ids: addresses(t, g)}
	if len(w.ids) != 2 {
		t.Fatalf("the guest has the devices %q", w.ids)
	}
	w.script = nvml.Machine("NVIDIA H200", w.ids...)
	w.script["gpu.0.node"], w.script["gpu.1.node"] = "/dev/edu0", "/dev/edu1"
	stage.Check(t, s.Watched(t.Context(), g, w.script))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), g))
	reaches(t, g, accel.Ready, 5*time.Minute)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 2))
	with := func(do func(*watched, string)) func(*testing.T, *bed.Node, string) {
		return func(t *testing.T, _ *bed.Node, image string) {
			do(&watched{T: t, n: w.n, script: w.script, ids: w.ids}, image)
		}
	}
	inOrder(t, n, image,
		part{"names, numbers and labels are known", with(namesAndNumbers)},
		part{"Xid 79 on one", with(xid)},
		part{"one falls off the bus and comes back", with(fallsOff)},
		part{"the program is killed and stopped under a pod", with(programDies)},
		part{"the library is of another version", with(otherVersion)},
		part{"the driver is replaced while it is watched", with(replacedWhileWatched)},
	)
}

// becomes waits until a device is in a state for a reason.
func (w *watched) becomes(device int, state accel.HealthState, reason accel.Reason) accel.Accelerator {
	w.Helper()
	var found accel.Accelerator
	_, err := stage.WaitMachine(stage.Within(w, soon), w.n.Guest, string(state)+" "+string(reason),
		func(m accel.Machine) bool {
			for _, a := range m.Have[stage.Kind].Accelerators {
				if a.ID == w.ids[device] && a.Health.State == state && a.Health.Reason == reason {
					found = a
					return true
				}
			}
			return false
		})
	stage.Check(w, err)
	return found
}

// play changes the machine that is played.
func (w *watched) play() {
	w.Helper()
	stage.Check(w, stage.Play(stage.Within(w, soon), w.n.Guest, w.script))
}

// metric waits until /metrics has a line.
func (w *watched) metric(line string) {
	w.Helper()
	ctx := stage.Within(w, soon)
	for {
		text, _, err := stage.Get(ctx, w.n.Guest, "/metrics")
		if err == nil && strings.Contains(text, line) {
			return
		}
		select {
		case <-ctx.Done():
			w.Fatalf("/metrics has no %s (%v)", line, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// signal waits until the program runs, which the agent starts again a little later each time, and sends it a signal.
func (w *watched) signal(name string) {
	w.Helper()
	sh(w.T, w.n.Guest, `for i in $(seq 300); do pkill "-$1" -x acceld-nvml && exit 0; sleep 0.1; done; exit 1`, name)
}

func namesAndNumbers(w *watched, _ string) {
	a := w.becomes(0, accel.Healthy, "")
	_, err := stage.WaitMachine(stage.Within(w, soon), w.n.Guest, "names", func(m accel.Machine) bool {
		for _, x := range m.Have[stage.Kind].Accelerators {
			if x.Model != "NVIDIA H200" || x.UUID == "" || x.Fabric == "" {
				return false
			}
		}
		return true
	})
	stage.Check(w, err)
	w.metric(`accelerator_power_usage_watts{accelerator_id="` + a.ID + `",vendor="qemu"} 78.25`)
	ctx := stage.Within(w, soon)
	stage.Check(w, w.n.WaitLabel(ctx, "nvidia.com/gpu.product", "NVIDIA-H200"))
	stage.Check(w, w.n.WaitLabel(ctx, "nvidia.com/gpu.count", "2"))
	stage.Check(w, w.n.WaitLabel(ctx, "acceld.dev/qemu-edu.product", "NVIDIA-H200"))
}

// xid: the driver reports an error, and everybody knows. Binding the driver again makes an end of it.
func xid(w *watched, _ string) {
	ctx := stage.Within(w, soon)
	w.script.Event(1, 8, 79)
	began := time.Now()
	lap := func(what string) { w.Logf("%-60s %6.2f s", what, time.Since(began).Seconds()) }
	w.play()
	lap("script in the guest")
	w.becomes(1, accel.Unhealthy, accel.DeviceFault)
	lap("Xid 79 -> device unhealthy")
	stage.Check(w, w.n.WaitAllocatable(ctx, stage.Resource, 1))
	lap("Xid 79 -> the kubelet offers one")
	stage.Check(w, w.n.WaitCondition(ctx, "AcceleratorsReady", "False", string(accel.DeviceFault)))
	lap("Xid 79 -> condition")
	w.metric(`accelerator_up{accelerator_id="` + w.ids[1] + `",vendor="qemu"} 0`)
	w.metric(`accelerator_driver_errors_total{accelerator_id="` + w.ids[1] + `",code="79",vendor="qemu"} 1`)
	lap("Xid 79 -> metrics")
	sh(w.T, w.n.Guest, `echo $1 > /sys/bus/pci/drivers/edu/unbind; echo $1 > /sys/bus/pci/drivers/edu/bind`, w.ids[1])
	w.becomes(1, accel.Healthy, "")
	stage.Check(w, w.n.WaitAllocatable(stage.Within(w, soon), stage.Resource, 2))
}

func fallsOff(w *watched, _ string) {
	w.script["gpu.0.lost"] = "1"
	w.play()
	w.becomes(0, accel.Unhealthy, accel.DeviceUnreachable)
	stage.Check(w, w.n.WaitAllocatable(stage.Within(w, soon), stage.Resource, 1))
	delete(w.script, "gpu.0.lost")
	w.play()
	w.becomes(0, accel.Healthy, "")
	stage.Check(w, w.n.WaitAllocatable(stage.Within(w, soon), stage.Resource, 2))
}

// programDies: the watching program's end is no pod's business, and its silence makes nothing unusable.
func programDies(w *watched, image string) {
	ctx := stage.Within(w, 5*time.Minute)
	stage.Check(w, w.n.Apply(ctx, stage.Pod("watched", image, 1, "-expect", "1")))
	for range 3 {
		w.signal("KILL")
	}
	stage.Check(w, w.n.WaitPod(ctx, "default", "watched", "Succeeded"))
	remove(w.T, w.n, "watched")
	w.becomes(0, accel.Healthy, "")
	w.signal("STOP")
	w.becomes(0, accel.Degraded, accel.ProbeUnanswered)
	w.becomes(0, accel.Healthy, "") // another one was started
	stage.Check(w, w.n.WaitAllocatable(stage.Within(w, soon), stage.Resource, 2))
}

func otherVersion(w *watched, _ string) {
	w.script["init"] = "18"
	w.play()
	w.signal("KILL")
	a := w.becomes(0, accel.Degraded, accel.LibraryMismatch)
	if !strings.Contains(a.Health.Message, "13.580.82.07") {
		w.Errorf("health: %+v", a.Health)
	}
	w.script["init"] = "0"
	w.play()
	w.signal("KILL")
	w.becomes(0, accel.Healthy, "")
}

// replacedWhileWatched: the program has the devices open, and is out of the way while their driver is replaced.
func replacedWhileWatched(w *watched, _ string) {
	before := sh(w.T, w.n.Guest, `for i in $(seq 300); do pgrep -x acceld-nvml && exit 0; sleep 0.1; done; exit 1`)
	sh(w.T, w.n.Guest, `ls -l /proc/$1/fd | grep -q /dev/edu`, before)
	w.Logf("%s", sh(w.T, w.n.Guest, "acceld driver upgrade qemu-edu --version 2.0.0 --holders refuse"))
	serves(w.T, w.n.Guest, stage.Version2)
	w.becomes(0, accel.Healthy, "")
	if after := sh(w.T, w.n.Guest, `pgrep -x acceld-nvml`); after == before || after == "" {
		w.Errorf("program %q before, %q after", before, after)
	}
}
