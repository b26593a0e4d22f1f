package nvml

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/health"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
	"github.com/acceld/acceld/probe"
	"github.com/acceld/acceld/vendors"
)

// addresses are those of the eight GPUs.
func addresses() []string {
	var all []string
	for _, bus := range []string{"19", "3b", "4c", "5d", "9b", "bb", "cb", "db"} {
		all = append(all, "0000:"+bus+":00.0")
	}
	return all
}

// soon is for what follows an event; generous, because the machine of a test is busy.
const soon = 20 * time.Second

// stand is an agent's side with the true program, which has loaded the player.
type stand struct {
	*testing.T
	script     Script
	player     *Player
	def        *accel.Definition
	supervisor *probe.Supervisor
	engine     *health.Engine
	host       *host.Host
	root       string // in which the program sees /proc and /sys
	news       chan struct{}
	mu         sync.Mutex
	changes    int
	users      []string
}

// setUsers says who has every device.
func (s *stand) setUsers(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = names
}

// built is where the library and the program are, once a test has asked for them.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "acceld-nvml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// programs builds what all tests need, once.
var programs = sync.OnceValue(func() error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	cpu := processor()
	if _, err := Build(context.Background(), root, built, cpu); err != nil {
		return err
	}
	program, err := Program(context.Background(), root, built, cpu)
	if err != nil || cpu == Here() {
		return err
	}
	return emulate(program)
})

func found(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// processor is this machine's unless ACCELD_NVML_ARCH names the other one that is supported.
func processor() Processor {
	if os.Getenv("ACCELD_NVML_ARCH") == "arm64" {
		return Processor{GOARCH: "arm64", CC: "aarch64-linux-gnu-gcc"}
	}
	return Here()
}

// emulate puts a script in a program's place that starts it under an emulator of its processor's instructions.
func emulate(program string) error {
	foreign := program + ".arm64"
	if err := os.Rename(program, foreign); err != nil {
		return err
	}
	// An emulated program that starts itself again would start the emulator.
	script := fmt.Sprintf("#!/bin/sh\nACCELD_SHIELDED=1 exec qemu-aarch64-static -L /usr/aarch64-linux-gnu '%s' \"$@\"\n",
		foreign)
	return os.WriteFile(program, []byte(script), 0o755)
}

// newStand starts everything with a machine of eight GPUs, or as change makes it.
func newStand(t *testing.T, change func(*stand)) *stand {
	t.Helper()
	if cc := processor().CC; !found(cc) {
		t.Skipf("builds a library and a program that loads it: needs %s", cc)
	}
	if err := programs(); err != nil {
		t.Fatal(err)
	}
	s := &stand{T: t, script: Machine("NVIDIA H200", addresses()...), root: t.TempDir(), news: make(chan struct{}, 1)}
	// A library of its own for each test: the script is beside it.
	dir := t.TempDir()
	s.player = &Player{Library: filepath.Join(dir, "libnvidia-ml.so.1")}
	s.check(os.Link(filepath.Join(built, "libnvidia-ml.so.1"), s.player.Library))
	s.file("/sys/module/nvidia/version", "580.82.07\n")
	s.file("/sys/class/dmi/id/product_name", "DGX H200\n")
	defs, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	s.def = defs["nvidia-gpu"]
	patience := "250ms"
	if processor() != Here() {
		patience = "3s" // calls are slow there
	}
	s.def.Probe.Argv = append(s.def.Probe.Argv, "-library", s.player.Library, "-root", s.root, "-every", "300ms",
		"-patience", patience)
	s.def.Probe.Silence = "3s"
	if change != nil {
		change(s)
	}
	s.play()
	m := hosttest.New(t)
	m.File("/proc/uptime", "1000.00 1.00\n")
	s.engine = health.New(health.Options{
		Host: m.Host, File: "/run/acceld/health.json", Changed: s.changed,
		Definitions: func() map[string]*accel.Definition { return map[string]*accel.Definition{s.def.Kind: s.def} },
	})
	h, err := host.New("/")
	s.check(err)
	s.host = h
	s.supervisor = probe.New(probe.Options{
		Host: h, Beside: built, Metrics: exporter.MetricNames(), Changed: s.changed, Fault: s.engine.Told,
		Backoff: pace.Backoff{First: 50 * time.Millisecond, Max: 50 * time.Millisecond},
		Users: func(context.Context, *accel.Definition, accel.Accelerator) []string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.users
		},
	})
	ctx, end := context.WithCancel(context.Background()) // that of the test ends before its cleanups
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.supervisor.Run(ctx)
	}()
	t.Cleanup(func() { end(); <-done })
	return s
}

func (s *stand) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// file writes a file that the program sees.
func (s *stand) file(name, text string) {
	s.Helper()
	name = filepath.Join(s.root, name)
	s.check(os.MkdirAll(filepath.Dir(name), 0o755))
	s.check(os.WriteFile(name, []byte(text), 0o644))
}

func (s *stand) changed() {
	s.mu.Lock()
	s.changes++
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *stand) play() {
	s.Helper()
	s.check(s.player.Play(s.script))
}

// look is what the agent makes of the devices now.
func (s *stand) look() []accel.Accelerator {
	var accs []accel.Accelerator
	for i, id := range addresses() {
		accs = append(accs, accel.Accelerator{
			ID: id, NUMANode: i / 4, Bound: "nvidia", Health: accel.Health{State: accel.Healthy},
			Nodes: []accel.DeviceNode{{Path: fmt.Sprintf("/dev/nvidia%d", i), Major: 195, Minor: uint32(i)}},
		})
	}
	return s.engine.Judge(s.def, nil, s.supervisor.Enrich(s.def, accs))
}

// until waits for the devices to be as ok wants them, and returns them and how long it took.
func (s *stand) until(what string, ok func([]accel.Accelerator) bool) ([]accel.Accelerator, time.Duration) {
	s.Helper()
	began := time.Now()
	for {
		accs := s.look()
		if ok(accs) {
			return accs, time.Since(began)
		}
		select {
		case <-s.news:
		case <-time.After(100 * time.Millisecond): // readings make no news
		}
		if time.Since(began) > soon {
			s.Fatalf("%s: not within %s; the first four are %+v; program: %+v", what, soon, accs[:4],
				s.supervisor.State(s.def.Kind))
		}
	}
}

// is reports whether a device is in a state for a reason, and all others are healthy.
func is(n int, state accel.HealthState, reason accel.Reason) func([]accel.Accelerator) bool {
	return func(accs []accel.Accelerator) bool {
		for i, a := range accs {
			if i == n && (a.Health.State != state || a.Health.Reason != reason) ||
				i != n && a.Health.State != accel.Healthy {
				return false
			}
		}
		return true
	}
}

// all reports whether every device is in a state for a reason.
func all(state accel.HealthState, reason accel.Reason) func([]accel.Accelerator) bool {
	return func(accs []accel.Accelerator) bool {
		return !slices.ContainsFunc(accs, func(a accel.Accelerator) bool {
			return a.Health.State != state || a.Health.Reason != reason
		})
	}
}

// refusal is why a device is not offered.
func refusal(a accel.Accelerator) string {
	_, message := a.Refusal()
	return message
}

// known reports whether all is well and the program has said so.
func known(accs []accel.Accelerator) bool {
	return all(accel.Healthy, "")(accs) && accel.CountOffered(accs) == len(accs) && accs[7].Model != ""
}

func TestMachine(t *testing.T) {
	s := newStand(t, nil)
	if first := s.look()[0]; !first.WithheldBy(accel.ByPartitioning) || first.Withheld.Reason != accel.ProbeUnanswered {
		t.Errorf("before anybody has said how it is divided: %+v", first)
	}
	accs, took := s.until("eight GPUs", known)
	t.Logf("program started -> eight GPUs known: %s", took)
	a := accs[3]
	if a.UUID != "GPU-00000000-0000-4000-8000-000000000003" || a.Serial != "1652024000003" ||
		a.Model != "NVIDIA H200" || a.Fabric != "nvlink "+addresses()[0] || a.NUMANode != 0 {
		t.Errorf("names: %+v", a)
	}
	s.until("readings", func([]accel.Accelerator) bool { return len(s.supervisor.Readings(s.def.Kind, a.ID)) > 0 })
	want := map[string]float64{
		"accelerator_temperature_celsius": 41, "accelerator_memory_temperature_celsius": 55,
		"accelerator_power_usage_watts": 78.25, "accelerator_power_limit_watts": 700,
		"accelerator_energy_joules_total": 123456.789,
		"accelerator_sm_clock_hertz":      1980e6, "accelerator_memory_clock_hertz": 3201e6,
		"accelerator_utilization_ratio": 0.25, "accelerator_gpu_utilization": 25,
		"accelerator_memory_utilization_ratio": 0.05, "accelerator_encoder_utilization_ratio": 0.4,
		"accelerator_decoder_utilization_ratio": 0.07,
		"accelerator_memory_total_bytes":        150754820096, "accelerator_memory_used_bytes": 1048576,
		"accelerator_ecc_corrected_errors_total": 2, "accelerator_ecc_uncorrected_errors_total": 0,
		"accelerator_pcie_replays_total": 3,
		"accelerator_remapped_rows":      1, "accelerator_row_remap_pending": 0, "accelerator_row_remap_failed": 0,
		"accelerator_throttle_seconds_total":       1.5,
		"accelerator_link_transmitted_bytes_total": 2048 * 1024, "accelerator_link_received_bytes_total": 1024 * 1024,
		"accelerator_link_replays_total": 7,
	}
	if diff := cmp.Diff(want, s.supervisor.Readings(s.def.Kind, a.ID), cmp.Comparer(func(a, b float64) bool {
		return math.Abs(a-b) <= 1e-9*math.Abs(a)
	})); diff != "" {
		t.Errorf("readings (-want +got):\n%s", diff)
	}
	s.mu.Lock()
	changes := s.changes
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes != changes {
		t.Errorf("a machine on which nothing happens has made %d changes within a second", s.changes-changes)
	}
}

// TestTensors: how busy the tensor cores are is known once there are two samples, of models that tell.
func TestTensors(t *testing.T) {
	s := newStand(t, func(s *stand) {
		s.script.gpu(2, "tensors", "37.5")
		s.script.gpu(3, "tensors", "nan")
	})
	const name = "accelerator_tensor_activity_ratio"
	s.until("tensor cores", func([]accel.Accelerator) bool {
		return s.supervisor.Readings(s.def.Kind, addresses()[2])[name] == 0.375
	})
	for _, i := range []int{1, 3} {
		if v, known := s.supervisor.Readings(s.def.Kind, addresses()[i])[name]; known {
			t.Errorf("GPU %d tells %v", i, v)
		}
	}
}

// TestLabels: what GPU Feature Discovery would write, in the names of its README.
func TestLabels(t *testing.T) {
	s := newStand(t, func(s *stand) { s.divide(2) })
	accs, _ := s.until("known", known)
	m := accel.Machine{
		Want:   accel.Want{Kinds: map[string]*accel.Definition{s.def.Kind: s.def}},
		Have:   map[string]accel.Have{s.def.Kind: {Accelerators: accs, Probe: s.supervisor.State(s.def.Kind)}},
		Status: map[string]accel.Status{s.def.Kind: {}},
	}
	got := kube.Labels(m)
	for key := range got {
		if !strings.HasPrefix(key, "nvidia.com/") {
			delete(got, key)
		}
	}
	want := map[string]string{}
	for name, value := range map[string]string{
		"gpu.present": "true", "gpu.count": "8", "gpu.product": "NVIDIA-H200", "gpu.machine": "DGX-H200",
		"gpu.memory": "143771", "gpu.mode": "compute",
		"gpu.family": "hopper", "gpu.compute.major": "9", "gpu.compute.minor": "0",
		"cuda.driver-version.full": "580.82.07", "cuda.driver-version.major": "580", "cuda.driver-version.minor": "82",
		"cuda.driver-version.revision": "07",
		"cuda.driver.major":            "580", "cuda.driver.minor": "82", "cuda.driver.rev": "07",
		"cuda.runtime-version.full": "13.0", "cuda.runtime-version.major": "13", "cuda.runtime-version.minor": "0",
		"cuda.runtime.major": "13", "cuda.runtime.minor": "0",
		"mig.capable": "true", "mig.strategy": "mixed",
		"mig-3g.71gb.count": "1", "mig-3g.71gb.product": "NVIDIA-H200-MIG-3g.71gb", "mig-3g.71gb.memory": "71000",
		"mig-3g.71gb.multiprocessors": "48",
		"mig-3g.71gb.slices.gi":       "3", "mig-3g.71gb.slices.ci": "3", "mig-3g.71gb.engines.copy": "3",
		"mig-3g.71gb.engines.decoder": "0",
		"mig-3g.71gb.engines.encoder": "0", "mig-3g.71gb.engines.jpeg": "0", "mig-3g.71gb.engines.ofa": "0",
		"mig-1g.18gb.count": "2", "mig-1g.18gb.product": "NVIDIA-H200-MIG-1g.18gb", "mig-1g.18gb.memory": "18000",
		"mig-1g.18gb.multiprocessors": "16",
		"mig-1g.18gb.slices.gi":       "1", "mig-1g.18gb.slices.ci": "1", "mig-1g.18gb.engines.copy": "1",
		"mig-1g.18gb.engines.decoder": "0",
		"mig-1g.18gb.engines.encoder": "0", "mig-1g.18gb.engines.jpeg": "0", "mig-1g.18gb.engines.ofa": "0",
	} {
		want["nvidia.com/"+name] = value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// divide divides a GPU into one large and two small instances.
func (s *stand) divide(gpu int) {
	s.script.gpu(gpu, "mig", "1")
	for i, text := range []string{"1 0 3g.71gb MIG-a 71000", "5 0 1g.18gb MIG-b 18000", "6 0 1g.18gb MIG-c 18000"} {
		s.script.gpu(gpu, fmt.Sprintf("mig.%d", i), text)
	}
}

// TestXid: an error that the driver has reported is the device's within a moment, with what the definition says of its
// code.
func TestXid(t *testing.T) {
	s := newStand(t, nil)
	s.until("known", known)
	s.script.Event(3, 8, 79)
	s.play()
	accs, took := s.until("Xid 79", is(3, accel.Unhealthy, accel.DeviceFault))
	t.Logf("Xid 79 -> unhealthy: %s", took)
	h := accs[3].Health
	if h.Action != accel.ActionReboot || h.Message != "error 79, the GPU has fallen off the bus" ||
		h.Evidence != "NVML: Xid 79" {
		t.Errorf("health: %+v", h)
	}
	// What a program did wrong is counted, and so is each of the same.
	s.script.Event(5, 8, 31)
	s.script.Event(5, 8, 31)
	s.play()
	accs, _ = s.until("two Xids 31", func(accs []accel.Accelerator) bool {
		return len(accs[5].Faults) == 1 && accs[5].Faults[0].Count == 2
	})
	if f := accs[5].Faults[0]; f.Code != "31" || f.Title == "" || accs[5].Health.State != accel.Healthy {
		t.Errorf("fault %+v, health %+v", f, accs[5].Health)
	}
}

// TestLost: a GPU that has fallen off the bus keeps its names and has no readings; the others go on.
func TestLost(t *testing.T) {
	s := newStand(t, nil)
	s.until("known", known)
	s.until("readings", func([]accel.Accelerator) bool {
		return len(s.supervisor.Readings(s.def.Kind, addresses()[3])) > 0
	})
	s.script.gpu(3, "lost", "1")
	s.script["gpu.*.temperature"] = "50"
	s.play()
	accs, took := s.until("lost", is(3, accel.Unhealthy, accel.DeviceUnreachable))
	t.Logf("lost -> unhealthy: %s", took)
	if accs[3].Health.Action != accel.ActionReboot {
		t.Errorf("health: %+v", accs[3].Health)
	}
	s.until("readings of the others alone", func([]accel.Accelerator) bool {
		return len(s.supervisor.Readings(s.def.Kind, addresses()[3])) == 0 && s.supervisor.Readings(s.def.Kind,
			addresses()[4])["accelerator_temperature_celsius"] == 50
	})
	delete(s.script, "gpu.3.lost")
	s.play()
	s.until("well again", known)
}

// TestLostFromTheStart: NVML knows the GPU and cannot ask it for anything.
func TestLostFromTheStart(t *testing.T) {
	s := newStand(t, func(s *stand) { s.script.gpu(6, "lost", "1") })
	s.until("lost", is(6, accel.Unhealthy, accel.DeviceUnreachable))
}

// TestMissed: a GPU that the kernel's driver has and NVML has not.
func TestMissed(t *testing.T) {
	s := newStand(t, func(s *stand) { s.script["count"] = "7" })
	s.until("missed", is(7, accel.Unhealthy, accel.DeviceUnhealthy))
}

// TestHangs: a call that does not return takes one device away; when one holds a lock for which all wait, none.
func TestHangs(t *testing.T) {
	s := newStand(t, nil)
	s.until("known", known)
	s.script.gpu(2, "hang", "1")
	s.script["gpu.*.temperature"] = "60"
	s.play()
	accs, _ := s.until("one hangs", is(2, accel.Unhealthy, accel.ProbeUnanswered))
	if accs[2].UUID == "" {
		t.Errorf("the one that hangs: %+v", accs[2])
	}
	s.until("no readings of the one that hangs", func([]accel.Accelerator) bool {
		return len(s.supervisor.Readings(s.def.Kind, accs[2].ID)) == 0
	})
	s.until("readings of the others", func([]accel.Accelerator) bool {
		return s.supervisor.Readings(s.def.Kind, addresses()[1])["accelerator_temperature_celsius"] == 60
	})
	s.script.Event(4, 8, 48)
	s.play()
	s.until("errors of the others", func(accs []accel.Accelerator) bool {
		return accs[4].Health.Reason == accel.DeviceFault
	})
	delete(s.script, "event.1")
	s.script.gpu(2, "hang", "lock")
	s.play()
	s.until("a lock for all", func(accs []accel.Accelerator) bool {
		return accs[2].Health.State == accel.Degraded && accs[5].Health.State == accel.Degraded &&
			accs[5].Health.Reason == accel.ProbeUnanswered
	})
	delete(s.script, "gpu.2.hang")
	s.play()
	s.until("the lock is free", func(accs []accel.Accelerator) bool {
		return accs[2].Health.State == accel.Healthy && accs[5].Health.State == accel.Healthy
	})
}

// TestStartHangs: a library that does not even start makes devices degraded, and no more.
func TestStartHangs(t *testing.T) {
	s := newStand(t, func(s *stand) { s.script["init"] = "hang" })
	s.until("hangs", all(accel.Degraded, accel.ProbeUnanswered))
	s.script["init"] = "0"
	s.play()
	s.until("started", known)
}

func TestInstances(t *testing.T) {
	s := newStand(t, func(s *stand) {
		s.divide(2)
		for file, minor := range map[string]int{"gi1": 30, "gi1/ci0": 31, "gi5": 66, "gi5/ci0": 67} {
			s.file("/proc/driver/nvidia/capabilities/gpu2/mig/"+file+"/access",
				fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 292\n", minor))
		}
	})
	accs, _ := s.until("divided", known)
	var got []string
	for _, p := range accs[2].Partitions {
		got = append(got, fmt.Sprintf("%s %s %s %d %s", p.ID, p.UUID, s.def.OfferedAs(p.Profile),
			p.Capacity["memory"]>>20, p.Health.Message))
	}
	id := addresses()[2]
	want := []string{
		id +
			"-1g.18gb-gi5-ci0 MIG-b nvidia.com/mig-1g.18gb 18000 there is no device node /dev/nvidia-caps/nvidia-cap66, /dev/nvidia-caps/nvidia-cap67",
		id + "-1g.18gb-gi6-ci0 MIG-c nvidia.com/mig-1g.18gb 18000 ",
		id +
			"-3g.71gb-gi1-ci0 MIG-a nvidia.com/mig-3g.71gb 71000 there is no device node /dev/nvidia-caps/nvidia-cap30, /dev/nvidia-caps/nvidia-cap31",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	if !accs[2].Partitioned() || accs[1].Partitioned() || len(accs[2].Partitions[1].Nodes) != 1 {
		t.Errorf("divided: %+v", accs[2].Partitions)
	}
	// Another layout, which the driver tells of.
	s.script.gpu(2, "mig.0", "9 0 7g.141gb+me MIG-d 141000")
	delete(s.script, "gpu.2.mig.1")
	delete(s.script, "gpu.2.mig.2")
	s.script.Event(2, 256, 0)
	s.play()
	_, took := s.until("another layout", func(accs []accel.Accelerator) bool {
		return len(accs[2].Partitions) == 1 &&
			s.def.OfferedAs(accs[2].Partitions[0].Profile) == "nvidia.com/mig-7g.141gb.me"
	})
	t.Logf("divided otherwise -> known: %s", took)
	delete(s.script, "gpu.2.mig.0")
	s.play()
	s.until("no instance left", is(2, accel.Unhealthy, accel.DevicePartitioned))
	s.script.gpu(2, "mig", "0")
	s.play()
	s.until("whole again", known)
}

// TestMismatch: driver and library of two versions, until one of them is replaced.
func TestMismatch(t *testing.T) {
	s := newStand(t, func(s *stand) { s.script["init"] = "18" })
	accs, _ := s.until("mismatch", all(accel.Degraded, accel.LibraryMismatch))
	if m := accs[0].Health.Message; m != "the loaded driver is 580.82.07, and NVML on this host is 13.580.82.07" {
		t.Errorf("message %q", m)
	}
	s.script["init"] = "0"
	s.play()
	s.file("/sys/module/nvidia/version", "580.90.01\n")
	s.until("the driver was replaced", known)
}

// TestAbsent: without the library nothing is worse for any device, and it is said why less is known.
func TestAbsent(t *testing.T) {
	s := newStand(t, nil)
	s.check(os.Remove(s.player.Library))
	s.until("absent", func(accs []accel.Accelerator) bool {
		h := s.supervisor.State(s.def.Kind)
		return all(accel.Healthy, "")(accs) && h != nil && strings.Contains(h.Problem, "NVML cannot be loaded") &&
			strings.Contains(h.Problem, s.player.Library)
	})
}

// pid is the process of the program that runs.
func (s *stand) pid() int {
	entries, err := os.ReadDir("/proc")
	s.check(err)
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscan(e.Name(), &n); err == nil && s.supervisor.Owns(n) {
			return n
		}
	}
	return 0
}

// TestKilled: a program that crashes is started again, and nobody notices.
func TestKilled(t *testing.T) {
	s := newStand(t, nil)
	s.until("known", known)
	for range 3 {
		first := s.pid()
		s.check(syscall.Kill(first, syscall.SIGKILL))
		s.until("another one", func(accs []accel.Accelerator) bool {
			if !known(accs) {
				t.Fatalf("while the program was away: %+v", accs[0])
			}
			next := s.pid()
			return next != 0 && next != first
		})
		s.until("it has said something", func([]accel.Accelerator) bool {
			return s.supervisor.State(s.def.Kind).Problem == ""
		})
	}
}

// TestShielded: the library, which runs as root, cannot make nodes or links in /dev, and the host's /dev is as before.
func TestShielded(t *testing.T) {
	if os.Geteuid() != 0 || processor() != Here() {
		t.Skip("it needs root, and is not for an emulator")
	}
	s := newStand(t, nil)
	s.until("known", known)
	const flags = 5
	options := func(pid string) (last string) {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "mountinfo"))
		s.check(err)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > flags && f[flags-1] == "/dev" {
				last = f[flags]
			}
		}
		return last
	}
	if got := options(fmt.Sprint(s.pid())); !slices.Contains(strings.Split(got, ","), "ro") {
		t.Errorf("its /dev is mounted %q, want read-only", got)
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.pid())); err != nil || string(name) != "acceld-nvml\n" {
		t.Errorf("ps shows it as %q, %v", name, err)
	}
	if got := options("self"); slices.Contains(strings.Split(got, ","), "ro") {
		t.Errorf("the host's /dev is mounted %q", got)
	}
	if f, err := os.OpenFile(fmt.Sprintf("/proc/%d/root/dev/null", s.pid()), os.O_RDWR, 0); err != nil {
		t.Errorf("a device node cannot be opened: %v", err)
	} else {
		s.check(f.Close())
	}
}

// TestSilent: a program that does nothing any more is told from one that has nothing to say, and is replaced.
func TestSilent(t *testing.T) {
	s := newStand(t, nil)
	s.until("known", known)
	first := s.pid()
	s.check(syscall.Kill(first, syscall.SIGSTOP))
	s.until("silent", all(accel.Degraded, accel.ProbeUnanswered))
	s.until("replaced", known)
	if s.pid() == first {
		t.Error("it is the same program")
	}
}

// TestPause: while a driver is replaced no program holds it, and what was known before is forgotten.
func TestPause(t *testing.T) {
	s := newStand(t, func(s *stand) { s.divide(2) })
	s.until("known", known)
	resume := s.supervisor.Pause(t.Context(), s.def.Kind)
	if pid := s.pid(); pid != 0 {
		t.Errorf("process %d runs", pid)
	}
	s.until("forgotten", func(accs []accel.Accelerator) bool {
		s.supervisor.Enrich(s.def, nil) // the driver is unloaded
		return accs[0].Model == "" && !accs[2].Partitioned()
	})
	resume()
	s.until("known again", known)
}

// TestLayout: a declared layout is made when no pod has the device, the device is held back meanwhile, and what cannot
// be is said.
func TestLayout(t *testing.T) {
	id := addresses()[1]
	s := newStand(t, func(s *stand) {
		s.script["profile.0"], s.script["profile.1"], s.script["profile.2"] = "1g.18gb 1 7 18000", "3g.71gb 3 2 71000",
			"7g.141gb+me 7 1 141000"
	})
	s.until("known", known)
	layout := func(parts map[string]int) {
		def := *s.def
		p := *def.Partitions
		p.Layout = []accel.Layout{{Devices: []string{id}, Parts: parts}}
		def.Partitions = &p
		s.def = &def
	}
	profiles := func(accs []accel.Accelerator) string {
		var names []string
		for _, p := range accs[1].Partitions {
			names = append(names, p.Profile)
		}
		return strings.Join(names, " ")
	}
	s.setUsers("pod default/trainer")
	layout(map[string]int{"1g.18gb": 7})
	accs, _ := s.until("it waits", func(accs []accel.Accelerator) bool {
		return accs[1].Withheld != nil && strings.Contains(accs[1].Withheld.Message, "waits for")
	})
	if h := accs[1].Withheld; h.Reason != accel.DeviceHeld ||
		h.Message != "it is to be divided into 7 of 1g.18gb; it waits for pod default/trainer" || profiles(accs) != "" {
		t.Errorf("while a pod has it: %+v, %s", h, profiles(accs))
	}
	s.setUsers()
	_, took := s.until("seven", func(accs []accel.Accelerator) bool {
		return known(accs) && profiles(accs) == strings.TrimSpace(strings.Repeat("1g.18gb ", 7))
	})
	t.Logf("nobody has it -> divided: %s", took)
	layout(map[string]int{"1g.18gb": 3, "3g.71gb": 1})
	s.until("one large, three small", func(accs []accel.Accelerator) bool {
		return known(accs) && profiles(accs) == "1g.18gb 1g.18gb 1g.18gb 3g.71gb"
	})
	layout(map[string]int{"5g.100gb": 1})
	s.until("no such profile", func(accs []accel.Accelerator) bool {
		return strings.Contains(refusal(accs[1]),
			"that failed: it has no profile 5g.100gb; there are 1g.18gb, 3g.71gb, 7g.141gb.me") &&
			profiles(accs) == "1g.18gb 1g.18gb 1g.18gb 3g.71gb"
	})
	layout(map[string]int{"3g.71gb": 3}) // more than fit
	s.until("no room", func(accs []accel.Accelerator) bool {
		return strings.Contains(refusal(accs[1]),
			"divided into 3 of 3g.71gb; that failed: cannot create instance 3 of profile 3g.71gb")
	})
	layout(nil)
	s.until("whole", func(accs []accel.Accelerator) bool { return known(accs) && profiles(accs) == "" })
}
