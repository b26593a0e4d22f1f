package e2e

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestUsePerPod: two pods share a device, one computes much and holds much, the other little, and a process of the host
// uses it, too. What each uses is in the metrics, the machine and the status, exactly as the driver has it and as the
// pods' own logs say, and ends with whoever used it.
func TestUsePerPod(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1})
	stage.Check(t, s.Units(t.Context(), n.Guest, byDevicePlugin+"kinds: {qemu-edu: {sharing: {replicas: 2}}}\n"))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), n.Guest))
	reaches(t, n.Guest, accel.Ready, 5*time.Minute)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 2))
	inOrder(
		t, n, image,
		part{"what each uses", useShown},
		part{"what ends is shown no more", useEnds},
	)
}

// share is what the test device's driver says that a process uses of it.
type share struct {
	compute, dma float64 // seconds
	held         int64
}

// shares asks the driver about every process that has the device open, by the name of its pod, or "" on the host. Pods
// are told by their UIDs.
func shares(t *testing.T, n *bed.Node, pods map[string]string) map[string]share {
	t.Helper()
	text := sh(t, n.Guest, `for p in $(pgrep -x edu-check); do for f in /proc/$p/fd/*; do
[ "$(readlink $f)" = /dev/edu0 ] && echo "process $(tr '\n' ' ' < /proc/$p/cgroup)" && cat /proc/$p/fdinfo/${f##*/}; done; done; true`)
	t.Logf("the driver says:\n%s", text)
	out := map[string]share{}
	who := ""
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, _ := strconv.ParseInt(strings.Fields(value + " x")[0], 10, 64)
		switch s := out[who]; {
		case strings.HasPrefix(line, "process "):
			who = ""
			for uid, pod := range pods {
				if strings.Contains(strings.ReplaceAll(line, "_", "-"), uid) {
					who = pod
				}
			}
		case key == "edu-engine-compute":
			s.compute = float64(number) / float64(time.Second)
			out[who] = s
		case key == "edu-engine-dma":
			s.dma = float64(number) / float64(time.Second)
			out[who] = s
		case key == "edu-resident-device":
			s.held = number
			out[who] = s
		}
	}
	return out
}

// seen is what acceld says of its users of the device, in the same form.
func seen(m accel.Machine) map[string]share {
	out := map[string]share{}
	for _, a := range m.Have[stage.Kind].Accelerators {
		if a.Use == nil {
			continue
		}
		for _, u := range a.Use.Users {
			out[u.Pod] = share{u.EngineSeconds["compute"], u.EngineSeconds["dma"], u.MemoryBytes.Or(-1)}
		}
	}
	return out
}

// same reports whether two sets of figures are the same but for the rounding of sums.
func same(a, b map[string]share) bool {
	near := func(x, y float64) bool { return math.Abs(x-y) < 1e-6 }
	return maps.EqualFunc(a, b, func(x, y share) bool {
		return near(x.compute, y.compute) && near(x.dma, y.dma) && x.held == y.held
	})
}

// did is what a pod's own log says: how many factorials it has computed, and how often it has copied something.
func did(t *testing.T, n *bed.Node, pod string) (factorials, copies int) {
	t.Helper()
	log, err := n.PodLog(stage.Within(t, soon), "default", pod)
	stage.Check(t, err)
	for _, m := range regexp.MustCompile(`alive, (\d+) factorials`).FindAllStringSubmatch(log, -1) {
		more, _ := strconv.Atoi(m[1])
		factorials, copies = factorials+more, copies+1
	}
	return factorials, copies
}

func useShown(t *testing.T, n *bed.Node, image string) {
	work := []string{"-expect", "1", "-hold", "2h", "-number", "4000000"}
	apply(t, n, stage.Pod("busy", image, 1, append(slices.Clone(work), "-every", "20ms", "-copy", "2048")...))
	apply(t, n, stage.Pod("calm", image, 1, append(slices.Clone(work), "-every", "500ms", "-copy", "64")...))
	sh(t, n.Guest, "systemd-run --unit=bystander /usr/bin/edu-check -devices /dev/edu0 -hold 2h -every 500ms -copy 1000")
	for _, pod := range []string{"busy", "calm"} {
		stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", pod, corev1.PodRunning))
	}
	begin := time.Now()
	pods := map[string]string{}
	_, err := stage.WaitMachine(stage.Within(t, 3*time.Minute), n.Guest, "three users", func(m accel.Machine) bool {
		for _, a := range m.Have[stage.Kind].Accelerators {
			if a.Use != nil {
				for _, u := range a.Use.Users {
					pods[u.PodUID] = u.Pod
				}
			}
		}
		return len(seen(m)) == 3
	})
	stage.Check(t, err)
	t.Logf("three users shown after %.0f s", time.Since(begin).Seconds())
	delete(pods, "")
	time.Sleep(time.Minute)
	// What stands still can be compared: acceld looks again, and has what the driver has.
	sh(t, n.Guest, "kill -STOP $(pgrep -x edu-check); sleep 3")
	truth := shares(t, n, pods)
	m, err := stage.WaitMachine(stage.Within(t, 3*time.Minute), n.Guest, fmt.Sprintf("%+v", truth),
		func(m accel.Machine) bool { return same(seen(m), truth) })
	stage.Check(t, err)
	for _, u := range m.Have[stage.Kind].Accelerators[0].Use.Users {
		if u.InPod() != (u.Container == "compute") || u.Unit != "" || u.Processes != 1 { // TCP names no services
			t.Errorf("%+v", u)
		}
	}
	if len(truth) != 3 || truth["busy"].held != 2048 || truth["calm"].held != 64 || truth[""].held != 1000 {
		t.Errorf("memory: %+v", truth)
	}
	useAsLogged(t, n, truth)
	metrics, _, err := stage.Get(stage.Within(t, soon), n.Guest, "/metrics")
	stage.Check(t, err)
	for pod, s := range truth {
		for _, want := range []struct {
			name, engine string
			value        float64
		}{
			{"accelerator_container_memory_used_bytes", "", float64(s.held)},
			{"accelerator_container_engine_seconds_total", "compute", s.compute},
			{"accelerator_container_engine_seconds_total", "dma", s.dma},
		} {
			got, there := useSeries(metrics, want.name, pod, want.engine)
			if !there || math.Abs(got-want.value) > 1e-6 {
				t.Errorf("%s of %q, engine %q: %v, want %v", want.name, pod, want.engine, got, want.value)
			}
		}
	}
	address := strings.TrimSpace(addresses(t, n.Guest)[0])
	status := sh(t, n.Guest, "acceld status "+address)
	t.Logf("acceld status %s:\n%s", address, status)
	flat := strings.Join(strings.Fields(status), " ")
	for _, want := range []string{"USED BY MEMORY BUSY ENGINE TIME", "default/busy (compute) 2 KiB", "default/calm (compute) 64 B", "bystander.service 1000 B"} {
		if !strings.Contains(flat, want) {
			t.Errorf("the status does not say %q", want)
		}
	}
	sh(t, n.Guest, "kill -CONT $(pgrep -x edu-check)")
}

// useAsLogged holds the driver's figures to what the pods say that they did: the time of the DMA engine to the number
// of copies, of 0.2 s each, and the ratio of the times of the other engine to that of the numbers of equal factorials.
func useAsLogged(t *testing.T, n *bed.Node, truth map[string]share) {
	t.Helper()
	count := map[string]int{}
	for _, pod := range []string{"busy", "calm"} {
		factorials, copies := did(t, n, pod)
		count[pod] = factorials
		t.Logf("%s: says %d factorials and %d copies; shown %.3f s and %.3f s", pod, factorials, copies,
			truth[pod].compute, truth[pod].dma)
		if dma, least, most := truth[pod].dma, 0.19*float64(copies), 0.5*float64(copies+5); dma < least || dma > most {
			t.Errorf("%s: %d copies took %.3f s of the engine", pod, copies, dma)
		}
	}
	said, shown := float64(count["busy"])/float64(count["calm"]), truth["busy"].compute/truth["calm"].compute
	t.Logf("one computes %.1f times as much as the other; shown %.1f times", said, shown)
	if said < 2 || shown < said/3 || shown > said*3 {
		t.Errorf("one computes %.1f times as much as the other; shown %.1f times", said, shown)
	}
}

// useSeries returns the value of a series of a pod, or of all outside pods.
func useSeries(metrics, name, pod, engine string) (value float64, there bool) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, name+"{") && strings.Contains(line, fmt.Sprintf(`pod=%q`, pod)) &&
			(engine == "" || strings.Contains(line, fmt.Sprintf(`engine=%q`, engine))) {
			value, _ = strconv.ParseFloat(strings.Fields(line)[len(strings.Fields(line))-1], 64)
			return value, true
		}
	}
	return 0, false
}

// useEnds goes on where useShown ends.
func useEnds(t *testing.T, n *bed.Node, _ string) {
	before, err := stage.Machine(t.Context(), n.Guest)
	stage.Check(t, err)
	remove(t, n, "calm")
	sh(t, n.Guest, "systemctl stop bystander")
	m, err := stage.WaitMachine(stage.Within(t, 3*time.Minute), n.Guest, "one user", func(m accel.Machine) bool {
		return slices.Equal(slices.Collect(maps.Keys(seen(m))), []string{"busy"})
	})
	stage.Check(t, err)
	if was, is := seen(before)["busy"], seen(m)["busy"]; is.compute < was.compute || is.dma < was.dma {
		t.Errorf("the counters of a pod that goes on have fallen: %+v, then %+v", was, is)
	}
	metrics, _, err := stage.Get(stage.Within(t, soon), n.Guest, "/metrics")
	stage.Check(t, err)
	for pod, want := range map[string]bool{"busy": true, "calm": false, "": false} {
		if _, there := useSeries(metrics, "accelerator_container_memory_used_bytes", pod, ""); there != want {
			t.Errorf("memory of %q: %t", pod, there)
		}
	}
	if sum, there := useSeries(metrics, "accelerator_container_engine_seconds_total", "", "dma"); !there || sum < seen(before)[""].dma {
		t.Errorf("all outside pods have used %v, %t; one of them %v", sum, there, seen(before)[""].dma)
	}
	remove(t, n, "busy")
}
