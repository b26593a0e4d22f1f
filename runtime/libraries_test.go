package runtime

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestUserSpace: the libraries and programs of a kind with a user space are named below its link, and come from nowhere
// else.
func TestUserSpace(t *testing.T) {
	b := newBed(t, t.TempDir())
	def := *b.def
	b.def = &def
	def.Driver.UserSpace, def.Driver.Modules = &accel.UserSpace{}, []accel.Module{{Name: "edu"}}
	def.Container.Libraries = []accel.Libraries{{Names: []string{"libedu.so.1", "libmore.so.{{.DriverVersion}}"}, SameVersion: true}}
	def.Container.Programs = []accel.Programs{{Names: []string{"edu-smi", "absent"}}, {Path: "/opt/bin", Names: []string{"edu-smi"}}}
	b.write("/usr/bin/absent", "of the host")
	if err := os.Chmod(b.path("/usr/bin/absent"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, p := b.r.Apply(b.def, b.accs, b.want); p == nil || p.Reason != accel.UserSpaceMissing {
		t.Errorf("without one: %v", p)
	}
	const stored = "/var/lib/acceld/userspace/0123/root"
	b.write(stored+"/usr/lib64/libedu.so.1.0.0", "\x7fELF")
	b.write(stored+"/usr/bin/edu-smi", "program")
	b.write("/sys/module/edu/version", "1.0.0\n")
	b.write("/run/acceld/driver/other", "")
	for link, text := range map[string]string{
		stored + "/usr/lib64/libedu.so.1": "libedu.so.1.0.0",
		accel.UserSpaceRoot(b.def.Kind):   stored,
	} {
		if err := os.Symlink(text, b.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	b.apply()
	spec := b.files()[specFile]
	root := accel.UserSpaceRoot(b.def.Kind)
	for _, want := range []string{
		`"hostPath": "` + root + `/usr/lib64/libedu.so.1.0.0"`, `"containerPath": "/usr/lib/libedu.so.1"`,
		`"containerPath": "/usr/lib64/libedu.so.1"`, `"containerPath": "/usr/lib64/libedu.so.1.0.0"`,
		`"hostPath": "` + root + `/usr/bin/edu-smi"`, `"containerPath": "/usr/bin/edu-smi"`,
		`"containerPath": "/opt/bin/edu-smi"`,
	} {
		if !strings.Contains(spec, want) {
			t.Errorf("the spec lacks %s:\n%s", want, spec)
		}
	}
	for _, no := range []string{"absent", "libmore", stored} {
		if strings.Contains(spec, no) {
			t.Errorf("the spec has %q", no)
		}
	}
	b.write("/sys/module/edu/version", "2.0.0\n")
	if _, p := b.r.Apply(b.def, b.accs, b.want); p == nil || p.Reason != accel.LibraryMismatch {
		t.Errorf("with other modules: %v", p)
	}
}

// TestLibraryMissing: a library that every container needs and that is not there is a warning once the driver is
// loaded, and changes nothing in the spec; one that images may bring is none.
func TestLibraryMissing(t *testing.T) {
	b := newBed(t, t.TempDir())
	def := *b.def
	b.def = &def
	def.Driver.Modules = []accel.Module{{Name: "edu-x"}}
	def.Container.Libraries = []accel.Libraries{{
		Names: []string{"libacceld-none.so.1", "libacceld-other.so.1"}, Required: []string{"libacceld-none.so.1"},
	}}
	b.apply()
	check := func() *accel.Problem {
		t.Helper()
		have, p := b.r.Check(b.def, b.accs, b.want)
		if p != nil || !have.Applied {
			t.Fatalf("%v, %+v", p, have)
		}
		return have.LibraryMissing
	}
	if p := check(); p != nil {
		t.Errorf("without a driver: %v", p)
	}
	b.write("/sys/module/edu_x/initstate", "live\n")
	p := check()
	if p == nil || p.Reason != accel.LibraryMissing || !strings.Contains(p.Message, `the host lacks what every container needs: "libacceld-none.so.1"`) {
		t.Errorf("with a driver: %v", p)
	}
	def.Driver.UserSpace = &accel.UserSpace{}
	root := accel.UserSpaceRoot(def.Kind)
	b.write(root+"/usr/lib64/libacceld-none.so.1", "\x7fELF")
	b.apply()
	if p := check(); p != nil {
		t.Errorf("with the library in the driver's user space: %v", p)
	}
}

// TestHostLibraries: without a user space they are those of the host, as its loader finds them.
func TestHostLibraries(t *testing.T) {
	b := newBed(t, t.TempDir())
	def := *b.def
	b.def = &def
	def.Container.Programs = []accel.Programs{{Names: []string{"edu-smi"}}}
	b.write("/usr/bin/edu-smi", "program")
	if err := os.Chmod(b.path("/usr/bin/edu-smi"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.apply()
	lines := strings.Split(b.files()[specFile], "\n")
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, `"hostPath": "/usr/bin/edu-smi"`) }) {
		t.Errorf("%s", b.files()[specFile])
	}
}

// TestUserSpaceOnHost: where it is asked for, programs of the host find the driver's libraries and programs; nothing
// else there is touched, and nothing stays.
func TestUserSpaceOnHost(t *testing.T) {
	b := newBed(t, t.TempDir())
	def := *b.def
	b.def = &def
	def.Driver.UserSpace, def.Driver.Modules = &accel.UserSpace{Host: true}, []accel.Module{{Name: "edu"}}
	def.Container.Libraries = []accel.Libraries{{Names: []string{"libedu.so.1", "libmore.so.{{.DriverVersion}}"}}}
	def.Container.Programs = []accel.Programs{{Names: []string{"edu-smi", "absent"}}}
	root := accel.UserSpaceRoot(b.def.Kind)
	serve := func(version string) {
		t.Helper()
		stored := "/var/lib/acceld/userspace/" + version + "/root"
		b.write(stored+"/usr/lib64/libedu.so.1", "\x7fELF")
		b.write(stored+"/usr/lib64/libmore.so."+version, "\x7fELF")
		b.write(stored+"/usr/bin/edu-smi", "program")
		b.write("/sys/module/edu/version", version+"\n")
		b.write("/run/acceld/driver/other", "")
		_ = os.Remove(b.path(root))
		if err := os.Symlink(stored, b.path(root)); err != nil {
			t.Fatal(err)
		}
	}
	links := func(names ...string) {
		t.Helper()
		for _, dir := range []string{"/usr/lib64", "/usr/local/bin"} {
			entries, err := os.ReadDir(b.path(dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				text, err := os.Readlink(b.path(dir + "/" + e.Name()))
				if i := slices.Index(names, e.Name()); err != nil || i < 0 || !strings.HasPrefix(text, root+"/usr/") {
					t.Errorf("%s/%s -> %q, %v", dir, e.Name(), text, err)
				} else {
					names = slices.Delete(names, i, i+1)
				}
			}
		}
		if len(names) > 0 {
			t.Errorf("there is no %q", names)
		}
	}
	for _, dir := range []string{"/usr/lib64", "/usr/local/bin"} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	serve("1.0.0")
	b.apply()
	links("libedu.so.1", "libmore.so.1.0.0", "edu-smi")
	if have, p := b.r.Check(b.def, b.accs, b.want); p != nil || !have.Applied {
		t.Errorf("%+v %v", have, p)
	}

	serve("2.0.0")
	if have, p := b.r.Check(b.def, b.accs, b.want); p != nil || have.Applied {
		t.Errorf("the links are of another version, and the check says %+v %v", have, p)
	}
	b.apply()
	links("libedu.so.1", "libmore.so.2.0.0", "edu-smi")

	def.Driver.UserSpace = &accel.UserSpace{}
	if have, p := b.r.Check(b.def, b.accs, b.want); p != nil || have.Applied {
		t.Errorf("nobody asks for the links any more, and the check says %+v %v", have, p)
	}
	b.apply()
	links()

	def.Driver.UserSpace = &accel.UserSpace{Host: true}
	b.apply()
	if p := b.r.Remove(b.def); p != nil {
		t.Fatal(p)
	}
	links()

	// A disk that has died must not take devices away that serve: the links decide if their record cannot be read.
	b.apply()
	journal := b.path("/var/lib/acceld/ledger/journal")
	if err := errors.Join(os.Rename(journal, journal+"-"), os.Mkdir(journal, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, asked := range []*accel.UserSpace{{Host: true}, {}} {
		def.Driver.UserSpace = asked
		if have, p := b.r.Check(b.def, b.accs, b.want); p != nil || !have.Applied {
			t.Errorf("without the record, %+v asked for: %+v %v", asked, have, p)
		}
		if _, p := b.r.Apply(b.def, b.accs, b.want); p != nil {
			t.Errorf("without the record, %+v asked for: %v", asked, p)
		}
	}
	def.Driver.UserSpace = &accel.UserSpace{Host: true}
	if err := errors.Join(os.Remove(journal), os.Rename(journal+"-", journal)); err != nil {
		t.Fatal(err)
	}
	if p := b.r.Remove(b.def); p != nil {
		t.Fatal(p)
	}

	b.write("/usr/local/bin/edu-smi", "somebody's")
	if _, p := b.r.Apply(b.def, b.accs, b.want); p == nil || p.Reason != accel.FileConflict ||
		!strings.Contains(p.Message, "/usr/local/bin/edu-smi") {
		t.Errorf("a file of somebody else: %v", p)
	}
	if text, err := os.ReadFile(b.path("/usr/local/bin/edu-smi")); err != nil || string(text) != "somebody's" {
		t.Errorf("%s %v", text, err)
	}
}
