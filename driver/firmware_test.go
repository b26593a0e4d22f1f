package driver

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/test/ko"
)

// updates is where the kernel looks for firmware that an administrator adds.
const updates = "/lib/firmware/updates"

// bring puts firmware into an entry of the store, as an artifact does.
func (m *testMachine) bring(e store.Entry, name, content string) {
	m.T.Helper()
	sum, err := store.Digest(strings.NewReader(content))
	if err != nil {
		m.T.Fatal(err)
	}
	e.Firmware = append(e.Firmware, artifact.File{Path: name, SHA256: sum})
	text, err := json.Marshal(e.Manifest)
	if err != nil {
		m.T.Fatal(err)
	}
	m.Write(e.Path+"/manifest.json", string(text))
	m.Write(e.Path+"/firmware/"+name, content)
}

// TestFirmwareOfTheStore has a row for each state of the places in which the kernel looks for a driver's firmware.
func TestFirmwareOfTheStore(t *testing.T) {
	var packed bytes.Buffer
	w, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte("new"))
	_ = w.Close()
	const own = "/var/lib/acceld/firmware"
	for _, c := range []struct {
		name    string
		prepare func(*testMachine)
		reason  accel.Reason
		path    string // the kernel's setting afterwards
		where   string // where the file was placed; empty when none was
	}{
		{"nobody uses the setting", func(m *testMachine) {
			m.Write(kmod.FirmwarePath, "")
		}, "", own, own + "/edu/fw.bin"},
		{"somebody does", func(m *testMachine) {
			m.Write(kmod.FirmwarePath, "/srv/fw")
		}, "", "/srv/fw", updates + "/edu/fw.bin"},
		{"a kernel without the setting", func(*testMachine) {}, "", "", updates + "/edu/fw.bin"},
		{"it is there", func(m *testMachine) {
			m.Write(kmod.FirmwarePath, "")
			m.Write("/lib/firmware/edu/fw.bin", "new")
		}, "", "", ""},
		{"it is there, compressed", func(m *testMachine) {
			m.Write(kmod.FirmwarePath, "")
			m.Write("/lib/firmware/edu/fw.bin.zst", packed.String())
		}, "", "", ""},
		{"another one is there", func(m *testMachine) {
			m.Write(kmod.FirmwarePath, "")
			m.Write("/lib/firmware/edu/fw.bin", "old")
		}, accel.FirmwareConflict, "", ""},
		{"another one is there for this kernel", func(m *testMachine) {
			m.Write(kmod.FirmwarePath, "")
			m.Write("/lib/firmware/"+ko.Release+"/edu/fw.bin", "old")
		}, accel.FirmwareConflict, "", ""},
		{"another one in somebody's directory", func(m *testMachine) {
			m.Write(kmod.FirmwarePath, "/srv/fw")
			m.Write("/srv/fw/edu/fw.bin", "old")
		}, accel.FirmwareConflict, "/srv/fw", ""},
		{"one of an earlier driver", func(m *testMachine) {
			m.Write(kmod.FirmwarePath, own)
			m.Write(own+"/edu/fw.bin", "old")
		}, "", own, own + "/edu/fw.bin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			c.prepare(m)
			d := m.driver(Options{})
			m.bring(m.enter(d, ko.Edu(), 1), "edu/fw.bin", "new")
			def := ko.Definition()
			def.Driver.Modules[0].Firmware = []string{"edu/fw.bin"}
			_, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
			if c.reason == "" && problem != nil || c.reason != "" && (problem == nil || problem.Reason != c.reason ||
				len(m.loads) > 0) {
				t.Fatal(problem, m.loads)
			}
			if b, _ := os.ReadFile(m.Path(kmod.FirmwarePath)); string(b) != c.path {
				t.Errorf("the setting is %q, want %q", b, c.path)
			}
			for _, file := range []string{own + "/edu/fw.bin", updates + "/edu/fw.bin"} {
				b, err := os.ReadFile(m.Path(file))
				if (err == nil) != (file == c.where) || err == nil && string(b) != "new" {
					t.Errorf("%q: %q, %v", file, b, err)
				}
			}
			if _, problem := d.Purge(t.Context(), PurgeOptions{Kinds: m.kinds(def)}); problem != nil {
				t.Fatal(problem)
			}
			if _, err := d.ledger.Undo(ledger.UndoOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(m.Path("/lib/firmware/updates/edu")); err == nil {
				t.Error("a purge leaves a file")
			}
			if b, _ := os.ReadFile(m.Path(kmod.FirmwarePath)); strings.HasPrefix(string(b), own) &&
				c.name != "one of an earlier driver" {
				t.Errorf("after a purge the setting is %q", b)
			}
		})
	}
}

// TestFirmwareNotTaken: firmware that escapes its entry's directory, or differs from what was stored, is never
// placed.
func TestFirmwareNotTaken(t *testing.T) {
	for _, c := range []struct {
		name, file, rot string
		reason          accel.Reason
	}{
		{"outside of its directory", "../../../../../etc/cron.d/x", "", accel.ArtifactInvalid},
		{"other content", "edu/fw.bin", "rotten", accel.DigestMismatch},
	} {
		for setting, prepare := range map[string]func(*testMachine){
			"with the kernel's setting":    func(m *testMachine) { m.Write(kmod.FirmwarePath, "") },
			"without the kernel's setting": func(*testMachine) {},
		} {
			m := newMachine(t)
			prepare(m)
			d := m.driver(Options{})
			e := m.enter(d, ko.Edu(), 1)
			m.bring(e, c.file, "new")
			if c.rot != "" {
				m.Write(e.Path+"/firmware/"+c.file, c.rot)
			}
			_, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
			if problem == nil || problem.Reason != c.reason || len(m.loads) > 0 {
				t.Errorf("%s, %s: %v, loads %v", c.name, setting, problem, m.loads)
			}
			for _, file := range []string{
				"/etc/cron.d/x", path.Join(d.o.StateDir, "firmware") + "/edu/fw.bin",
				updates + "/edu/fw.bin",
			} {
				if b, err := os.ReadFile(m.Path(file)); err == nil {
					t.Errorf("%s, %s: %q is %q", c.name, setting, file, b)
				}
			}
		}
	}
}

// TestFirmwareIsReplacedByAnUpgrade: a file that acceld placed is replaced by the next driver's file, but not if
// somebody has changed it meanwhile.
func TestFirmwareIsReplacedByAnUpgrade(t *testing.T) {
	for _, changed := range []bool{false, true} {
		m := newMachine(t)
		m.Write(kmod.FirmwarePath, "/srv/fw")
		d := m.driver(Options{})
		def := wants("1.0.0")
		m.bring(m.enter(d, ko.Edu(), 1), "edu/fw.bin", "one")
		if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
			t.Fatal(problem)
		}
		if changed {
			m.Write(updates+"/edu/fw.bin", "mine")
		}
		x := ko.Edu()
		x.Version, x.BuildID = "2.0.0", "c2c2"
		m.bring(m.enter(d, x, 2), "edu/fw.bin", "two")
		def.Driver.Version = "2.0.0"
		_, problem := d.Upgrade(t.Context(), def, m.Facts(), m.accs())
		want := "two"
		if changed {
			want = "mine"
		}
		if got := m.Read(updates + "/edu/fw.bin"); got != want || (problem != nil) != changed ||
			changed && problem.Reason != accel.FirmwareConflict {
			t.Errorf("changed %t: %q, %v", changed, got, problem)
		}
	}
}

// TestFirmwareOfAFirstFetch: firmware that only the artifact has counts before the store has the artifact.
func TestFirmwareOfAFirstFetch(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	m.Write(kmod.FirmwarePath, "")
	def := fromShop(s)
	def.Driver.Modules[0].Firmware = []string{"edu/fw.bin"}
	other := newMachine(t)
	theirs := other.driver(Options{Artifact: quick()})
	other.bring(other.enter(theirs, ko.Edu(), 1), "edu/fw.bin", "new")
	entries, err := theirs.store.List()
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if _, problem := theirs.sources.Push(t.Context(), def, other.Facts(), entries[0], nil); problem != nil {
		t.Fatal(problem)
	}
	d := m.driver(Options{Artifact: quick()})
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem, problem.Tried)
	}
	if b, err := os.ReadFile(m.Path("/var/lib/acceld/firmware/edu/fw.bin")); string(b) != "new" {
		t.Errorf("%q, %v", b, err)
	}
}
