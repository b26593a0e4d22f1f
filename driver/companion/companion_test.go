package companion

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const (
	group = "/sys/fs/cgroup/system.slice/"
	one   = "/var/lib/acceld/userspace/one/root"
	two   = "/var/lib/acceld/userspace/two/root"
	unit  = "acceld-companion-edu.stay.service"
)

// machine is a host whose systemd starts what it is told to.
type machine struct {
	*testing.T
	*host.Host
	root string
	pids int
	// asked is what was asked of systemd; refuse is what it answers.
	asked  []string
	refuse error
	// dies says that programs end as soon as they were started; silent, that they are never ready.
	dies, silent bool
}

func newMachine(t *testing.T) (*machine, *Companions) {
	t.Helper()
	m := &machine{T: t, root: t.TempDir(), pids: 100}
	h, err := host.New(m.root)
	if err != nil {
		t.Fatal(err)
	}
	m.Host = h
	m.write("/run/systemd/system/units", "")
	for _, root := range []string{one, two} {
		m.write(root+"/usr/bin/edu-stayd", "")
	}
	c := New(h, m, slog.New(slog.DiscardHandler))
	c.ready = 50 * time.Millisecond
	return m, c
}

func (m *machine) write(name, text string) {
	m.Helper()
	name = filepath.Join(m.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) remove(name string) { _ = os.RemoveAll(filepath.Join(m.root, name)) }

func (m *machine) Start(_ context.Context, s host.Service) error {
	m.asked = append(m.asked, "start "+s.Name+" "+strings.Join(s.Argv, " "))
	if m.refuse != nil || m.dies {
		return m.refuse
	}
	m.pids++
	pid := strconv.Itoa(m.pids)
	m.write(group+s.Name+"/cgroup.procs", pid+"\n")
	m.write(transient+"/"+s.Name, "[Service]\nEnvironment="+strings.Join(s.Env, " ")+"\n")
	m.write("/proc/"+pid+"/cgroup", "0::/../../system.slice/"+s.Name+"\n")
	if s.RuntimeDirectory != "" && !m.silent {
		m.write("/run/"+s.RuntimeDirectory+"/ready", "")
	}
	return nil
}

func (m *machine) Stop(_ context.Context, name string) error {
	m.asked = append(m.asked, "stop "+name)
	if m.refuse != nil {
		return m.refuse
	}
	m.remove(group + name)
	m.remove(transient + "/" + name)
	m.remove("/run/edu-stay")
	return nil
}

// did returns what was asked of systemd since the last call.
func (m *machine) did() string {
	defer func() { m.asked = nil }()
	return strings.Join(m.asked, ", ")
}

func definition() *accel.Definition {
	return &accel.Definition{Kind: "edu", Title: "Edu", Driver: accel.DriverDefinition{
		UserSpace: &accel.UserSpace{}, Companions: []accel.Companion{{
			Name: "stay", Program: "edu-stayd", Args: []string{"--root={{.Root}}", "{{.DriverVersion}}"},
			Directory: "edu-stay", Ready: "/run/edu-stay/ready", Where: "/dev/edu*",
		}},
	}}
}

// TestOptional: a driver serves without an optional companion that does not start, the reason is kept, and it is not
// tried again until the definition or the user space changes. One that nobody has tried yet is waited for.
func TestOptional(t *testing.T) {
	m, c := newMachine(t)
	m.write("/dev/edu0", "")
	def := definition()
	def.Driver.Companions[0].Optional = true
	down := func(p *accel.Problem) bool { return p != nil && p.Reason == accel.CompanionDown }
	if have, problem := c.Judge(def, one, "1"); !down(problem) || len(have) != 1 || have[0].Runs || have[0].Why != "" {
		t.Errorf("before: %+v, %v", have, problem)
	}
	m.refuse = errors.New("no control groups")
	m.remove(group)
	if problem := c.Start(t.Context(), def, one, "1"); problem != nil {
		t.Errorf("it keeps the driver back: %v", problem)
	}
	have, problem := c.Judge(def, one, "1")
	if problem != nil || len(have) != 1 || have[0].Runs || !strings.Contains(have[0].State(), "no control groups") {
		t.Errorf("afterwards: %+v, %v", have, problem)
	}
	if _, problem := c.Judge(def, two, "2"); !down(problem) {
		t.Errorf("with another user space: %v", problem)
	}
	m.refuse = nil
	if problem := c.Start(t.Context(), def, one, "1"); problem != nil {
		t.Error(problem)
	}
	if have, problem := c.Judge(def, one, "1"); problem != nil || !have[0].Runs || have[0].State() != "runs" {
		t.Errorf("once it runs: %+v, %v", have, problem)
	}
}

// TestNeeded: a companion is needed where the host has what it is for and the user space has its program.
func TestNeeded(t *testing.T) {
	m, c := newMachine(t)
	def := definition()
	for _, none := range []func() string{
		func() string { return one }, // the host has no /dev/edu*
		func() string { m.write("/dev/edu0", ""); return "" },
		func() string { return "/var/lib/acceld/userspace/three/root" },
	} {
		root := none()
		if have, problem := c.Judge(def, root, "1"); len(have) != 0 || problem != nil {
			t.Errorf("%q: %+v %v", root, have, problem)
		}
		if problem := c.Start(t.Context(), def, root, "1"); problem != nil || m.did() != "" {
			t.Errorf("%q: %v", root, problem)
		}
	}
	def.Driver.UserSpace = nil
	if have, problem := c.Judge(def, one, "1"); len(have) != 0 || problem != nil {
		t.Errorf("with the user space of the host: %+v %v", have, problem)
	}
}

// TestStarts: a companion is started once, again when it is gone, and from the user space that serves.
func TestStarts(t *testing.T) {
	m, c := newMachine(t)
	m.write("/dev/edu0", "")
	def := definition()
	if have, problem := c.Judge(def, one, "1"); problem == nil || problem.Reason != accel.CompanionDown || have[0].Runs {
		t.Fatalf("%+v %v", have, problem)
	}
	starts := func(root string) string {
		return "stop " + unit + ", start " + unit + " " + path.Join(root, "usr/bin/edu-stayd") + " --root=" + root + " 1"
	}
	for _, step := range []struct {
		name   string
		change func()
		root   string
		does   bool
	}{
		{"at first", func() {}, one, true},
		{"it runs", func() {}, one, false},
		{"it is gone", func() { m.remove(group + unit) }, one, true},
		{"it is not ready", func() { m.remove("/run/edu-stay/ready") }, one, true},
		{"another user space serves", func() {}, two, true},
		{"it runs from there", func() {}, two, false},
		{"the definition has changed", func() { def.Title = "Educational" }, two, true},
		{"systemd is about to start it again", func() { m.write(group+unit+"/cgroup.procs", "\n") }, two, true},
	} {
		step.change()
		problem := c.Start(t.Context(), def, step.root, "1")
		want := ""
		if step.does {
			want = starts(step.root)
		}
		if did := m.did(); problem != nil || did != want {
			t.Errorf("%s: %v, systemd was asked to %q, want %q", step.name, problem, did, want)
		}
		if have, problem := c.Judge(def, step.root, "1"); problem != nil || !have[0].Runs {
			t.Errorf("%s: %+v %v", step.name, have, problem)
		}
	}
	def.Driver.Companions[0].Name = "other"
	if problem := c.Start(t.Context(), def, two, "1"); problem != nil ||
		!strings.HasPrefix(m.did(), "stop "+unit+", stop acceld-companion-edu.other.service, start ") {
		t.Error("the one that the definition has no more stays")
	}
	if problem := c.Stop(t.Context(), "*"); problem != nil || len(c.Units("*")) > 0 {
		t.Errorf("%v %q", problem, c.Units("*"))
	}
}

// TestFails: what fails is said, with the service.
func TestFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *machine)
		says   string
	}{
		"not started": {func(m *machine) { m.refuse = errors.New("no systemd") }, "no systemd"},
		"not ready":   {func(m *machine) { m.silent = true }, "is not ready"},
		"it ends":     {func(m *machine) { m.dies = true }, "ended before it was ready"},
		"its output, with systemd": {
			func(m *machine) { m.dies = true }, "(see: journalctl -u " + unit + ")",
		},
		"its output, without": {
			func(m *machine) { m.dies = true; m.remove("/run/systemd") }, "(see: /run/acceld/daemons/" + unit + ".log)",
		},
	} {
		m, companions := newMachine(t)
		m.write("/dev/edu0", "")
		c.change(m)
		problem := companions.Start(t.Context(), definition(), one, "1")
		if problem == nil || problem.Reason != accel.CompanionDown || !strings.Contains(problem.Message, c.says) {
			t.Errorf("%s: %v", name, problem)
		}
		if have, problem := companions.Judge(definition(), one, "1"); problem == nil || have[0].Runs {
			t.Errorf("%s: %+v %v", name, have, problem)
		}
	}
}

// TestEndsWithoutSystemd: a service that was made and has no process any more does not come back by itself.
func TestEndsWithoutSystemd(t *testing.T) {
	m, c := newMachine(t)
	m.write("/dev/edu0", "")
	s := service(definition(), definition().Driver.Companions[0], one, "1")
	m.write(host.DaemonsDir+"/"+s.Name, "edu-stay\n"+strings.Join(s.Env, "\n")+"\n")
	m.write(host.DaemonsDir+"/"+s.Name+".log", "")
	if got := c.Units("edu"); !slices.Equal(got, []string{unit}) {
		t.Errorf("%q", got)
	}
	if c.ended(s) {
		t.Error("systemd may start it again")
	}
	m.remove("/run/systemd")
	if !c.ended(s) {
		t.Error("nobody starts it again")
	}
	m.write(group+unit+"/cgroup.procs", "7\n")
	if c.ended(s) || c.down(accel.Companion{}, s) != "" {
		t.Errorf("it runs: %s", c.down(accel.Companion{}, s))
	}
}

// TestWithout: the companions of a kind do not count as users of its driver, and nobody else is left out.
func TestWithout(t *testing.T) {
	m, c := newMachine(t)
	m.write("/dev/edu0", "")
	unknown := accel.Holder{Other: "somebody who cannot be seen from here (the kernel counts a use of module edu)"}
	own, stranger := accel.Holder{PID: 101}, accel.Holder{PID: 7}
	m.write("/proc/7/cgroup", "0::/system.slice/x/system.slice/"+unit+"\n")
	if got := c.Without("edu", []accel.Holder{unknown}); len(got) != 1 {
		t.Error("a use without companions is somebody's")
	}
	if problem := c.Start(t.Context(), definition(), one, "1"); problem != nil {
		t.Fatal(problem)
	}
	if got := c.Without("edu", []accel.Holder{own, stranger, unknown, {Other: "module x"}}); !slices.Equal(got,
		[]accel.Holder{stranger, {Other: "module x"}}) {
		t.Errorf("%+v", got)
	}
	if got := c.Without("other", []accel.Holder{own}); len(got) != 1 {
		t.Error("the companion of another kind is a user like any other")
	}
}

// TestConfig: a companion reads the settings of its own version with those of the definition, as long as it runs.
func TestConfig(t *testing.T) {
	m, c := newMachine(t)
	m.write("/dev/edu0", "")
	m.write(one+"/usr/share/edu/edu.cfg", "# LOG=no\nLOG=/var/log/edu\nMODE=0\r\n\nPATHS=/usr/share/edu")
	m.write(two+"/usr/share/edu/edu.cfg", "MODE=1\nLOG = a\nLOG=b\n")
	def := definition()
	w := &def.Driver.Companions[0]
	w.Args = []string{"-c", "{{.Config}}"}
	w.Config, w.Settings = "usr/share/edu/edu.cfg", []string{"LOG=/run/edu-stay/log", "PATHS={{.Root}}/usr/share/edu", "OWN={{.Config}}"}
	file := "/run/acceld/companions/" + unit + ".conf"
	for _, step := range []struct{ root, want string }{
		{one, "# LOG=no\nLOG=/run/edu-stay/log\nMODE=0\r\n\nPATHS=" + one + "/usr/share/edu\nOWN=" + file + "\n"},
		{two, "MODE=1\nLOG=/run/edu-stay/log\nPATHS=" + two + "/usr/share/edu\nOWN=" + file + "\n"},
	} {
		problem := c.Start(t.Context(), def, step.root, "1")
		text, err := c.h.ReadFile(file)
		if problem != nil || err != nil || string(text) != step.want {
			t.Errorf("%v, %v: %q, want %q", problem, err, text, step.want)
		}
		if did := m.did(); !strings.HasSuffix(did, "usr/bin/edu-stayd -c "+file) {
			t.Errorf("systemd was asked to %q", did)
		}
	}
	w.Settings[0] = "LOG=/run/edu-stay/other"
	if _, problem := c.Judge(def, two, "1"); problem == nil {
		t.Error("it runs with other settings than the definition has")
	}
	if problem := c.Start(t.Context(), def, two, "1"); problem != nil || m.did() == "" {
		t.Error("it was not started again")
	}
	if problem := c.Stop(t.Context(), "edu"); problem != nil || c.h.Exists("/run/acceld/companions") {
		t.Errorf("settings are left: %v", problem)
	}
	m.remove(two + "/usr/share/edu/edu.cfg")
	m.did()
	if problem := c.Start(t.Context(), def, two, "1"); problem == nil || problem.Reason != accel.CompanionDown ||
		!strings.Contains(problem.Message, "edu.cfg") || strings.Contains(m.did(), "start") {
		t.Errorf("without settings of its version: %v", problem)
	}
}
