package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const (
	stays      = "acceld-companion-qemu-edu.stay.service"
	staysGroup = "/sys/fs/cgroup/system.slice/" + stays
)

// services is a systemd whose only service keeps a device open.
type services struct {
	*testMachine
	pid    int
	starts []string // the roots of the user spaces
	refuse string   // the version whose program does not run
}

func (s *services) Start(_ context.Context, o host.Service) error {
	root := path.Dir(path.Dir(path.Dir(o.Argv[0])))
	s.starts = append(s.starts, root)
	if s.refuse != "" && o.Argv[1] == s.refuse {
		return errors.New(`the job ended as "failed"`)
	}
	s.pid++
	s.open(s.pid, "edu-stayd", "/dev/edu0")
	s.Write(fmt.Sprintf("/proc/%d/cgroup", s.pid), "0::/system.slice/"+o.Name+"\n")
	s.Write("/run/systemd/transient/"+o.Name, strings.Join(o.Env, "\n"))
	s.Write(staysGroup+"/cgroup.procs", strconv.Itoa(s.pid)+"\n")
	s.Write("/sys/module/edu/refcnt", "2\n")
	return nil
}

func (s *services) Stop(context.Context, string) error {
	s.remove(fmt.Sprintf("/proc/%d", s.pid))
	s.remove(staysGroup)
	s.remove("/run/systemd/transient/" + stays)
	if s.isLive("edu") {
		s.Write("/sys/module/edu/refcnt", "0\n")
	}
	return nil
}

func attended(v string) *accel.Definition {
	def := spaced(v)
	def.Driver.Companions = []accel.Companion{{Name: "stay", Program: "edu-stayd", Args: []string{"{{.DriverVersion}}"}}}
	return def
}

// withCompanion is a machine on which 1.0.0 serves with its companion, which keeps a device open.
func withCompanion(t *testing.T) (*testMachine, *Driver, *services) {
	t.Helper()
	m := newMachine(t)
	m.bad = map[string]string{}
	m.Write("/run/systemd/system/units", "")
	s := &services{testMachine: m, pid: 500}
	for _, v := range []string{"1.0.0", "2.0.0"} {
		m.space(v, v)
	}
	d := m.driver(Options{Services: s})
	m.enter(d, version("1.0.0"), 1)
	m.enter(d, version("2.0.0"), 2)
	have, problem := d.Ensure(t.Context(), attended("1.0.0"), m.Facts(), m.accs())
	if problem != nil || !have.Serves || len(have.Companions) != 1 || !have.Companions[0].Runs || len(s.starts) != 1 {
		t.Fatalf("%+v %v, starts %q", have, problem, s.starts)
	}
	// The kernel unloads nothing that somebody has open.
	m.before = func(op string) {
		if strings.HasPrefix(op, "unload") && m.Host.Exists(staysGroup) {
			t.Errorf("%s while the companion runs", op)
		}
	}
	return m, d, s
}

// TestCompanionFollows: the companion is of the version that serves, after an upgrade and after one that is taken back,
// and does not keep either from happening.
func TestCompanionFollows(t *testing.T) {
	for how, want := range map[string]string{"": "2.0.0", "wrong": "1.0.0", "no companion": "1.0.0"} {
		m, d, s := withCompanion(t)
		m.bad["2.0.0"] = how
		if how == "no companion" {
			delete(m.bad, "2.0.0")
			s.refuse = "2.0.0"
		}
		have, problem := d.Upgrade(t.Context(), attended("2.0.0"), m.Facts(), m.accs())
		if !have.Serves || have.Version != want || m.served(d) != want || (problem == nil) != (how == "") {
			t.Errorf("%q: %+v %v", how, have, problem)
		}
		if how == "no companion" && (problem == nil || !strings.Contains(problem.Message, "cannot start \"edu-stayd\"")) {
			t.Errorf("%v", problem)
		}
		if last := s.starts[len(s.starts)-1]; last != d.spaces.Root(d.spaces.Served("qemu-edu")) ||
			len(have.Companions) != 1 || !have.Companions[0].Runs {
			t.Errorf("%q: the companion is from %q: %+v", how, last, have.Companions)
		}
	}
}

// TestCompanionGone: without its companion a driver does not serve; it is started again, and nothing is unloaded.
func TestCompanionGone(t *testing.T) {
	m, d, s := withCompanion(t)
	if problem := s.Stop(t.Context(), stays); problem != nil {
		t.Fatal(problem)
	}
	def := attended("1.0.0")
	if have, problem := d.Probe(def, m.Facts(), m.accs()); have.Serves || problem == nil ||
		problem.Reason != accel.CompanionDown {
		t.Errorf("%+v %v", have, problem)
	}
	s.refuse = "1.0.0"
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); have.Serves || problem == nil ||
		problem.Reason != accel.CompanionDown || !strings.Contains(problem.Message, "journalctl -u "+stays) {
		t.Errorf("%+v %v", have, problem)
	}
	s.refuse = ""
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); !have.Serves || problem != nil ||
		len(m.unloads) > 0 {
		t.Errorf("%+v %v, unloads %v", have, problem, m.unloads)
	}
}

// TestCompanionUnload: the companion goes with the driver, and stays if the driver does.
func TestCompanionUnload(t *testing.T) {
	m, d, s := withCompanion(t)
	def := attended("1.0.0")
	if users := d.Holders(def, m.accs()); len(users) > 0 {
		t.Errorf("the companion is a user: %+v", users)
	}
	m.open(9, "job", "/dev/edu0")
	problem := d.Unload(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.InUse || !strings.Contains(problem.Message, "job") ||
		strings.Contains(problem.Message, "edu-stayd") || len(s.starts) != 1 {
		t.Errorf("%v, starts %q", problem, s.starts)
	}
	m.remove("/proc/9")
	m.refuseUnload["edu"] = errors.New("no")
	if problem := d.Unload(t.Context(), def, m.Facts(), m.accs()); problem == nil || len(s.starts) != 2 {
		t.Errorf("%v, starts %q: the companion stays with the driver", problem, s.starts)
	}
	delete(m.refuseUnload, "edu")
	if problem := d.Unload(t.Context(), def, m.Facts(), m.accs()); problem != nil || m.Host.Exists(staysGroup) {
		t.Errorf("%v, or the companion still runs", problem)
	}
}

// TestCompanionReset: a reset does not find the companion in its way, and it runs afterwards.
func TestCompanionReset(t *testing.T) {
	m, d, s := withCompanion(t)
	def := attended("1.0.0")
	def.Reset = accel.ResetRebind
	targets := []ResetTarget{{Def: def, Device: m.accs()[0]}}
	problem := d.Reset(t.Context(), m.Facts(), targets, func(context.Context) *accel.Problem { return nil })
	if problem != nil || len(s.starts) != 2 || !m.Host.Exists(staysGroup) {
		t.Errorf("%v, starts %q", problem, s.starts)
	}
}

// TestCompanionPurge: a purge stops the companion, also where the driver stays, and a dry run only says so.
func TestCompanionPurge(t *testing.T) {
	for _, keep := range []bool{false, true} {
		m, d, _ := withCompanion(t)
		for _, dry := range []bool{true, false} {
			out, problem := d.Purge(t.Context(), PurgeOptions{
				DryRun: dry, KeepDrivers: keep, Kinds: m.kinds(attended("1.0.0")),
			})
			if problem != nil || len(out) == 0 || out[0].Path != stays || m.Host.Exists(staysGroup) != dry ||
				m.isLive("edu") != (keep || dry) {
				t.Errorf("keep %t, dry %t: %+v %v", keep, dry, out, problem)
			}
		}
	}
}

// TestCompanionKilled: an agent that is killed at any point of an upgrade leaves a companion that the next one puts
// right.
func TestCompanionKilled(t *testing.T) {
	for n := 0; ; n++ {
		m, d, s := withCompanion(t)
		points, dead := m.killAt(d, n, func() { d.Upgrade(t.Context(), attended("2.0.0"), m.Facts(), m.accs()) })
		if !dead {
			break
		}
		d = m.driver(Options{Services: s})
		have, problem := d.Ensure(t.Context(), attended("2.0.0"), m.Facts(), m.accs())
		if !have.Serves || s.starts[len(s.starts)-1] != d.spaces.Root(d.spaces.Served("qemu-edu")) ||
			!have.Companions[0].Runs {
			t.Errorf("killed at %v: %+v %v, starts %q", points[n], have, problem, s.starts)
		}
	}
}
