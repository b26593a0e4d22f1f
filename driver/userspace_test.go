package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/edu/user"
)

// spaced is the definition of [wants] with a user space in a directory of the host for each version.
func spaced(v string) *accel.Definition {
	def := wants(v)
	def.Driver.UserSpace = &accel.UserSpace{Sources: []accel.Source{
		{Type: accel.SourceRoot, Path: "/opt/edu-{{.DriverVersion}}"},
	}}
	def.Container.Libraries = []accel.Libraries{{Names: []string{user.Library}, SameVersion: true}}
	def.Container.Programs = []accel.Programs{{Names: []string{"edu-smi"}}}
	return def
}

// withSpaces is a machine on which version 1.0.0 serves with its user space. The store has the modules of 1.0.0 and
// 2.0.0, and the host the user space of those versions that are named.
func withSpaces(t *testing.T, versions ...string) (*testMachine, *Driver) {
	t.Helper()
	m := newMachine(t)
	m.bad = map[string]string{}
	for _, v := range versions {
		m.space(v, v)
	}
	d := m.driver(Options{})
	m.enter(d, version("1.0.0"), 1)
	m.enter(d, version("2.0.0"), 2)
	have, problem := d.Ensure(t.Context(), spaced("1.0.0"), m.Facts(), m.accs())
	if problem != nil || have.UserSpace == nil || m.served(d) != "1.0.0" {
		t.Fatalf("%+v %v, served %q", have, problem, m.served(d))
	}
	return m, d
}

// space installs the user space of a version below /opt/edu-<at>.
func (m *testMachine) space(at, v string) {
	m.T.Helper()
	header, err := filepath.Abs("../test/edu/module/edu.h")
	if err == nil {
		err = user.Root(m.T.Context(), m.Path("/opt/edu-"+at), v, header)
	}
	if err != nil {
		m.T.Fatal(err)
	}
}

// served is the version of the library that containers would get; empty if they would get none.
func (m *testMachine) served(d *Driver) string {
	m.T.Helper()
	key := d.spaces.Served("qemu-edu")
	if key == "" {
		return ""
	}
	file, err := os.Readlink(m.Path(filepath.Join(d.spaces.Root(key), accel.UserSpaceLibraries, user.Library)))
	if err != nil {
		m.T.Fatal(err)
	}
	return strings.TrimPrefix(file, "libedu.so.")
}

// TestUserSpaceFollows: at no point of an upgrade or a rollback containers would get a library of another version than
// the module's.
func TestUserSpaceFollows(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		m, d := withSpaces(t, "1.0.0", "2.0.0")
		want := "2.0.0"
		if wrong {
			m.bad["2.0.0"], want = "wrong", "1.0.0"
		}
		points := 0
		look := func(name string) {
			points++
			if served, live := m.served(d), m.liveVersion(); served != "" && live != "" && served != live {
				t.Errorf("at %q: the library is of %s, the module of %s", name, served, live)
			}
		}
		m.before, d.stopAt = look, look
		have, problem := d.Upgrade(t.Context(), spaced("2.0.0"), m.Facts(), m.accs())
		if wrong != (problem != nil) || !have.Serves || have.Version != want || m.served(d) != want || points < 10 {
			t.Errorf("%+v %v, served %q, %d points", have, problem, m.served(d), points)
		}
	}
}

// TestUserSpaceKilled: an agent that is killed at any point of an upgrade leaves no mix of versions, and the next one
// lets both halves of one version serve.
func TestUserSpaceKilled(t *testing.T) {
	for n := 0; ; n++ {
		m, d := withSpaces(t, "1.0.0", "2.0.0")
		def := spaced("2.0.0")
		points, dead := m.killAt(d, n, func() { d.Upgrade(t.Context(), def, m.Facts(), m.accs()) })
		if !dead {
			break
		}
		if served, live := m.served(d), m.liveVersion(); served != "" && live != "" && served != live {
			t.Errorf("killed at %v: the library is of %s, the module of %s", points[n], served, live)
		}
		d = m.driver(Options{})
		have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
		if !have.Serves || m.served(d) != have.Version {
			t.Errorf("killed at %v: %+v %v, served %q", points[n], have, problem, m.served(d))
		}
	}
}

// TestUserSpaceFirst: a driver whose user space cannot be had, or has another version, replaces none.
func TestUserSpaceFirst(t *testing.T) {
	for reason, prepare := range map[accel.Reason]func(*testMachine){
		accel.UserSpaceMissing: func(*testMachine) {},
		accel.LibraryMismatch:  func(m *testMachine) { m.space("2.0.0", "1.0.0") },
	} {
		m, d := withSpaces(t, "1.0.0")
		prepare(m)
		have, problem := d.Upgrade(t.Context(), spaced("2.0.0"), m.Facts(), m.accs())
		if problem == nil || problem.Reason != reason || !have.Serves || have.Version != "1.0.0" || len(m.unloads) > 0 ||
			m.served(d) != "1.0.0" {
			t.Errorf("%s: %+v %v, unloads %v", reason, have, problem, m.unloads)
		}
		if problem != nil && !strings.Contains(strings.Join(problem.Tried, "\n"), "user space, root /opt/edu-2.0.0: ") {
			t.Errorf("tried: %v", problem.Tried)
		}
	}
}

// TestUserSpaceRemoved: what is removed is set again, from the store if the source is gone, and nothing is unloaded.
func TestUserSpaceRemoved(t *testing.T) {
	m, d := withSpaces(t, "1.0.0")
	m.remove("/opt/edu-1.0.0")
	m.remove(accel.UserSpaceRoot("qemu-edu"))
	def := spaced("1.0.0")
	if have, problem := d.Probe(def, m.Facts(), m.accs()); have.Serves || problem == nil ||
		problem.Reason != accel.UserSpaceMissing {
		t.Errorf("%+v %v", have, problem)
	}
	have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || m.served(d) != "1.0.0" || len(m.unloads) > 0 {
		t.Errorf("%+v %v, served %q", have, problem, m.served(d))
	}
	library := filepath.Join(d.spaces.Root(d.spaces.Served("qemu-edu")), accel.UserSpaceLibraries, "libedu.so.1.0.0")
	m.Write(library, "damaged")
	m.remove(accel.UserSpaceRoot("qemu-edu"))
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); have.Serves || problem == nil ||
		m.served(d) != "" {
		t.Errorf("with a damaged file and no source: %+v %v, served %q", have, problem, m.served(d))
	}
	m.space("1.0.0", "1.0.0")
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); !have.Serves || problem != nil {
		t.Errorf("with a damaged file and a source: %+v %v", have, problem)
	}
}

// TestUserSpaceOfAnotherWish: a definition that names other parts of the user space gets them by an upgrade that
// unloads nothing. While no source has them, those before serve.
func TestUserSpaceOfAnotherWish(t *testing.T) {
	m, d := withSpaces(t, "1.0.0")
	before := d.spaces.Served("qemu-edu")
	def := spaced("1.0.0")
	def.Container.Programs = nil
	m.remove("/opt/edu-1.0.0")
	have, problem := d.Probe(def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || have.Upgrade == nil || !strings.Contains(have.Upgrade.Why, "user space") {
		t.Fatalf("%+v %v", have, problem)
	}
	if have, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs()); problem == nil || !have.Serves ||
		d.spaces.Served("qemu-edu") != before {
		t.Errorf("without a source: %+v %v", have, problem)
	}
	m.space("1.0.0", "1.0.0")
	have, problem = d.Upgrade(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || !have.Serves || have.Upgrade != nil || d.spaces.Served("qemu-edu") == before ||
		len(m.unloads) > 0 || len(m.loads) != 1 {
		t.Errorf("%+v %v, loads %v, unloads %v", have, problem, m.loads, m.unloads)
	}
}

// TestUserSpaceGone: once the modules are unloaded, or none is configured any more, containers get none.
func TestUserSpaceGone(t *testing.T) {
	m, d := withSpaces(t, "1.0.0")
	if problem := d.Unload(t.Context(), spaced("1.0.0"), m.Facts(), m.accs()); problem != nil || m.served(d) != "" {
		t.Errorf("%v, served %q", problem, m.served(d))
	}
}
