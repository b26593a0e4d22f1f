package steps

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/test/ko"
)

func withSteps(steps ...accel.CustomStep) *accel.Definition {
	def := ko.Definition()
	def.Driver.Version = "1.0.0"
	def.Steps = map[accel.Published]accel.StateSteps{accel.DriverContainer: {After: steps}}
	return def
}

// TestSteps runs each form of step with a condition that holds and with one that does not.
func TestSteps(t *testing.T) {
	m := hosttest.New(t)
	m.File("/dev/edu0", "")
	m.File("/var/log/edu.log", "one\nfirmware 1.0.0 ready\n")
	m.File("/proc/1/net/unix", "Num RefCount Protocol Flags Type St Inode Path\n"+
		"0000000000000000: 00000002 00000000 00010000 0001 01 100 /run/edu.sock\n0000000000000000: 00000003 00000000 00000000 0001 03 101 /run/other.sock\n")
	m.AddPCI(accel.PCIDevice{Address: "0000:00:04.0", Vendor: "1234", Device: "11e8", Class: "00ff00"})
	m.SetAttribute("0000:00:04.0", "status", "ready")
	accs := []accel.Accelerator{{ID: "0000:00:04.0", Health: accel.Health{State: accel.Healthy}}}
	d := New(m.Host, slog.New(slog.DiscardHandler), &deadline.Operations{}, nil)
	for _, c := range []struct {
		step accel.CustomStep
		want string // of the problem; empty when there is none
	}{
		{accel.CustomStep{Wait: &accel.WaitStep{File: "/var/log/edu.log"}}, ""},
		{
			accel.CustomStep{Wait: &accel.WaitStep{File: "/var/log/{{.HardwareResource}}"}},
			`not done after 20ms: "/var/log/qemu-edu" is not there`,
		},
		{accel.CustomStep{Wait: &accel.WaitStep{Node: "/dev/edu0"}}, ""},
		{accel.CustomStep{Wait: &accel.WaitStep{Node: "/dev/edu1"}}, `"/dev/edu1" is not a device node`},
		{accel.CustomStep{Wait: &accel.WaitStep{Socket: "/var/run/edu.sock"}}, ""},
		{accel.CustomStep{Wait: &accel.WaitStep{Socket: "/run/other.sock"}}, `nobody listens on "/run/other.sock"`},
		{accel.CustomStep{WaitForLogs: &accel.LogStep{
			File:  "/var/log/edu.log",
			Match: `firmware {{.DriverVersion}} ready`,
		}}, ""},
		{
			accel.CustomStep{WaitForLogs: &accel.LogStep{File: "/var/log/edu.log", Match: `^two`}},
			`"/var/log/edu.log" has no line that matches "^two"`,
		},
		{accel.CustomStep{Validate: &accel.ValidateStep{File: "status", Want: "ready|idle"}}, ""},
		{
			accel.CustomStep{Validate: &accel.ValidateStep{File: "status", Want: "read"}},
			`device "0000:00:04.0": "status" is "ready", wanted is "read"`,
		},
		{accel.CustomStep{Validate: &accel.ValidateStep{File: "absent", Want: "x"}}, `device "0000:00:04.0": open `},
		{
			accel.CustomStep{Run: &accel.RunStep{Argv: []string{"no-such-program"}}},
			`cannot find program "no-such-program"`,
		},
		{
			accel.CustomStep{
				Run:  &accel.RunStep{Argv: []string{"no-such-program"}},
				When: `{{if eq .OperatingSystemMajor "rhel9"}}yes{{end}}{{if ne .OperatingSystemMajor "rhel9"}}no{{end}}`,
			},
			"",
		},
		{
			accel.CustomStep{
				Run:  &accel.RunStep{Argv: []string{"no-such-program"}},
				When: `{{if eq .OperatingSystemMajor "rhel9"}}yes{{end}}`,
			},
			"",
		},
		{
			accel.CustomStep{
				Run:  &accel.RunStep{Argv: []string{"no-such-program"}},
				When: `{{if eq .OperatingSystemMajor "debian12"}}yes{{end}}`,
			},
			`cannot find program "no-such-program"`,
		},
	} {
		c.step.Name, c.step.Timeout = "it", "20ms"
		problem := d.Run(t.Context(), withSteps(c.step), accel.Facts{OS: accel.OS{ID: "debian", VersionID: "12"}}, accs,
			accel.DriverContainer, accel.After)
		switch {
		case c.want == "" && problem != nil:
			t.Errorf("%+v: %v", c.step, problem)
		case c.want != "" && (problem == nil || problem.Reason != accel.StepFailed || !strings.Contains(problem.Message,
			c.want)):
			t.Errorf("%+v: got %v, want %q", c.step, problem, c.want)
		}
	}
}

// TestStepPrograms runs programs of this machine: what they print, how they exit, which user they run as.
func TestStepPrograms(t *testing.T) {
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	d := New(h, slog.New(slog.DiscardHandler), &deadline.Operations{}, nil)
	run := func(argv ...string) accel.CustomStep {
		return accel.CustomStep{Name: "it", Run: &accel.RunStep{Argv: argv}, Timeout: "2s"}
	}
	quick := run("sleep", "60")
	quick.Timeout = "50ms"
	asked := accel.CustomStep{Name: "it", Validate: &accel.ValidateStep{
		Argv:   []string{"echo", "module $HOME; true"},
		Output: `^module \$HOME; true`,
	}}
	wrong := accel.CustomStep{Name: "it", Validate: &accel.ValidateStep{
		Argv:   []string{"echo", "nothing"},
		Output: `edu`,
	}}
	printed := func(output string) accel.CustomStep {
		return accel.CustomStep{Name: "it", Validate: &accel.ValidateStep{
			Argv:   []string{"/bin/sh", "-c", "echo version 7; seq 1000"},
			Output: output,
		}}
	}
	stranger := run("true")
	stranger.Run.User = "nobody-at-all"
	for _, c := range []struct {
		step accel.CustomStep
		want string
	}{
		{run("true"), ""},
		{
			run("/bin/sh", "-c", "echo first; echo second >&2; exit 3"),
			`step "it" after driver-container of "qemu-edu": "/bin/sh": exit status 3; it said: first | second`,
		},
		{quick, "not done after 50ms"},
		{asked, ""},
		{wrong, `"echo" printed nothing that matches "edu": nothing`},
		{printed("version 7"), ""},
		{printed(`(?m)^500$`), ""},
		{printed(`^version 7\n(.|\n)*\n1000$`), ""},
		{printed("version 8"), "| 999 | 1000"},
		{stranger, `cannot find user "nobody-at-all"`},
	} {
		started := time.Now()
		problem := d.Run(t.Context(), withSteps(c.step), accel.Facts{}, nil, accel.DriverContainer, accel.After)
		if problem == nil != (c.want == "") || problem != nil && !strings.Contains(problem.Message, c.want) {
			t.Errorf("%+v: got %v, want %q", c.step, problem, c.want)
		}
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("%+v took %v", c.step, took)
		}
	}
}

// TestStepOrder: the first failed step ends the run, and steps of another moment do not run.
func TestStepOrder(t *testing.T) {
	m := hosttest.New(t)
	d := New(m.Host, slog.New(slog.DiscardHandler), &deadline.Operations{}, nil)
	def := withSteps(
		accel.CustomStep{Name: "one", Wait: &accel.WaitStep{File: "/dev"}},
		accel.CustomStep{Name: "two", Timeout: "10ms", Wait: &accel.WaitStep{File: "/two"}},
		accel.CustomStep{Name: "three", Timeout: "10ms", Wait: &accel.WaitStep{File: "/three"}},
	)
	problem := d.Run(t.Context(), def, accel.Facts{}, nil, accel.DriverContainer, accel.After)
	if problem == nil || !strings.Contains(problem.Message, `step "two"`) {
		t.Errorf("got %v", problem)
	}
	if problem := d.Run(t.Context(), def, accel.Facts{}, nil, accel.DriverContainer, accel.Before); problem != nil {
		t.Errorf("a step of another moment ran: %v", problem)
	}
}

// TestWaitIsTold: a change ends a wait without waiting for the ticker, and cancellation ends it at once.
func TestWaitIsTold(t *testing.T) {
	m := hosttest.New(t)
	m.Dir("/var/log")
	d := New(m.Host, slog.New(slog.DiscardHandler), &deadline.Operations{}, nil)
	def := withSteps(accel.CustomStep{Name: "it", Timeout: "1m", WaitForLogs: &accel.LogStep{
		File:  "/var/log/x.log",
		Match: "ready",
	}})
	done := make(chan *accel.Problem)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- d.Run(ctx, def, accel.Facts{}, nil, accel.DriverContainer, accel.After) }()
	m.File("/var/log/x.log", "not yet")
	m.File("/var/log/x.log", "not yet\nready\n")
	if problem := <-done; problem != nil {
		t.Error(problem)
	}
	m.Remove("/var/log/x.log")
	go func() { done <- d.Run(ctx, def, accel.Facts{}, nil, accel.DriverContainer, accel.After) }()
	cancel()
	if problem := <-done; problem == nil {
		t.Error("a wait that was called off succeeded")
	}
}

// TestValidateEachDevice: a program that is told which device is run for each, and one good device does not pass for
// the others. A device that is gone is left out.
func TestValidateEachDevice(t *testing.T) {
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	d := New(h, slog.New(slog.DiscardHandler), &deadline.Operations{}, nil)
	healthy := accel.Health{State: accel.Healthy}
	accs := []accel.Accelerator{
		{ID: "0000:01:00.0", Health: healthy},
		{ID: "0000:02:00.0", Health: healthy},
		{ID: "0000:03:00.0", Health: accel.Health{State: accel.Gone}},
	}
	ask := func(output string) *accel.Problem {
		return d.Run(t.Context(), withSteps(accel.CustomStep{Name: "it", Validate: &accel.ValidateStep{
			Argv: []string{"echo", "{{.HardwareResource}}", "at={{.Address}}"}, Output: output,
		}}), accel.Facts{}, accs, accel.DriverContainer, accel.After)
	}
	if problem := ask(`^qemu-edu at=0000:0[12]:00\.0$`); problem != nil {
		t.Error(problem)
	}
	problem := ask(`01:00\.0`)
	if problem == nil || !strings.Contains(problem.Message, `device "0000:02:00.0": "echo" printed nothing`) ||
		strings.Contains(problem.Message, "0000:01:00.0\":") || strings.Contains(problem.Message, "0000:03") {
		t.Error(problem)
	}
}

// TestValidateConfined: a step of a confined definition reads attributes of the device only.
func TestValidateConfined(t *testing.T) {
	m := hosttest.New(t)
	const id = "0000:00:04.0"
	m.AddPCI(accel.PCIDevice{Address: id, Class: "00ff00"})
	m.File("/sys/class/iscsi_session/session1/password", "secret\n")
	def := withSteps(accel.CustomStep{Name: "x", Validate: &accel.ValidateStep{
		File: "/sys/class/iscsi_session/session1/password", Want: "secret",
	}})
	d := New(m.Host, slog.New(slog.DiscardHandler), &deadline.Operations{}, nil)
	for _, def.Confined = range []bool{false, true} {
		problem := d.Run(t.Context(), def, accel.Facts{}, []accel.Accelerator{{
			ID: id, Health: accel.Health{State: accel.Healthy},
		}}, accel.DriverContainer, accel.After)
		if (problem != nil) != def.Confined {
			t.Errorf("confined %v: %v", def.Confined, problem)
		}
	}
}

// TestWaitForPods: a pod is waited for by name, or as the one of a DaemonSet, until it is ready; a line by what its
// containers have printed.
func TestWaitForPods(t *testing.T) {
	m := hosttest.New(t)
	m.File("/var/log/pods/kube-system_fabric-x7k2p_u1/main/0.log",
		"2026-11-27T10:00:00.1Z stdout F starting\n2026-11-27T10:00:01.1Z stderr F fabric ready at 7\n")
	m.File("/var/log/pods/kube-system_other_u2/main/0.log", "2026-11-27T10:00:00.1Z stdout F fabric ready\n")
	all := []accel.NodePod{
		{Namespace: "kube-system", Name: "fabric-x7k2p", UID: "u1", DaemonSet: "fabric", Phase: "Running", Ready: true},
		{Namespace: "team", Name: "fabric-x7k2p", UID: "u3", DaemonSet: "starting", Phase: "Running"},
		{Namespace: "team", Name: "job", UID: "u4", Phase: "Succeeded"},
		{Namespace: "team", Name: "ended", UID: "u5", DaemonSet: "ended", Phase: "Succeeded"},
	}
	var unknown error
	d := New(m.Host, slog.New(slog.DiscardHandler), &deadline.Operations{}, func() ([]accel.NodePod, error) {
		return all, unknown
	})
	wait := func(w accel.WaitStep) accel.CustomStep { return accel.CustomStep{Wait: &w} }
	logs := func(l accel.LogStep) accel.CustomStep { return accel.CustomStep{WaitForLogs: &l} }
	for _, c := range []struct {
		step accel.CustomStep
		want string // of the problem; empty when there is none
	}{
		{wait(accel.WaitStep{Pod: "kube-system/fabric-x7k2p"}), ""},
		{wait(accel.WaitStep{DaemonSet: "kube-system/fabric"}), ""},
		{wait(accel.WaitStep{Pod: "team/job"}), ""},
		{wait(accel.WaitStep{DaemonSet: "team/ended"}), `the pod of DaemonSet "team/ended" is not ready: it is succeeded`},
		{wait(accel.WaitStep{DaemonSet: "team/fabric"}), `the pod of DaemonSet "team/fabric" is not on this node`},
		{wait(accel.WaitStep{DaemonSet: "team/starting"}), "is not ready: it is running"},
		{wait(accel.WaitStep{Pod: "team/nobody"}), `pod "team/nobody" is not on this node`},
		{logs(accel.LogStep{DaemonSet: "kube-system/fabric", Match: `^fabric ready at \d$`}), ""},
		{logs(accel.LogStep{Pod: "kube-system/fabric-x7k2p", Container: "main", Match: "^starting$"}), ""},
		{logs(accel.LogStep{Pod: "kube-system/fabric-x7k2p", Container: "side", Match: "starting"}), "no log of pod"},
		{logs(accel.LogStep{Pod: "kube-system/fabric-x7k2p", Match: "stdout"}), `has a line that matches "stdout"`},
		{logs(accel.LogStep{Pod: "kube-system/other", Match: "ready"}), `pod "kube-system/other" is not on this node`},
	} {
		c.step.Name, c.step.Timeout = "it", "20ms"
		problem := d.Run(t.Context(), withSteps(c.step), accel.Facts{}, nil, accel.DriverContainer, accel.After)
		if (problem == nil) != (c.want == "") || problem != nil && !strings.Contains(problem.Message, c.want) {
			t.Errorf("%+v %+v: got %v, want %q", c.step.Wait, c.step.WaitForLogs, problem, c.want)
		}
	}
	unknown = errNoPods
	problem := d.Run(t.Context(), withSteps(accel.CustomStep{
		Name: "it", Timeout: "20ms", Wait: &accel.WaitStep{Pod: "team/job"},
	}), accel.Facts{}, nil, accel.DriverContainer, accel.After)
	if problem == nil || !strings.Contains(problem.Message, "no credentials") {
		t.Error(problem)
	}
}

// TestOwnState: the steps of a definition's own state run for it, and for no other.
func TestOwnState(t *testing.T) {
	m := hosttest.New(t)
	d := New(m.Host, slog.New(slog.DiscardHandler), &deadline.Operations{}, nil)
	def := withSteps()
	def.States = []accel.OwnState{{Name: "fabric", After: accel.DevicePlugin, Steps: []accel.CustomStep{
		{Name: "it", Timeout: "10ms", Wait: &accel.WaitStep{File: "/{{.HardwareResource}}"}},
	}}}
	problem := d.Run(t.Context(), def, accel.Facts{}, nil, "state-fabric", accel.After)
	if problem == nil || !strings.Contains(problem.Message, `"/qemu-edu" is not there`) {
		t.Error(problem)
	}
	for _, p := range []accel.Published{accel.DevicePlugin, "state-other"} {
		if problem := d.Run(t.Context(), def, accel.Facts{}, nil, p, accel.After); problem != nil {
			t.Errorf("%s: %v", p, problem)
		}
	}
}
