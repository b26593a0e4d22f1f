package power

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/vendors"
)

// Module is where the test puts the module file of the stand-in accelerator, version 1.0.0, in the guest.
const Module = "/usr/lib/power/edu.ko"

const (
	kind   = "qemu-edu"
	one    = "1.0.0"
	two    = "2.0.0"
	three  = "3.0.0"
	broken = "1.0.0, and its parameters keep it from its device"
	source = "/usr/lib/power/source-{{.DriverVersion}}"
	bundle = "/usr/lib/power/bundle"
	fakeID = "/tmp/boot_id"
)

// machine is the guest with its real device, its real kernel and the driver's files on the disk.
type machine struct {
	driver *driver.Driver
	dir    string // of the state
	host   *host.Host
	facts  accel.Facts
	mark   func(step string) error // nil when nobody listens
	err    error                   // of mark
}

// newMachine gives the guest another boot: no module is loaded, /run is empty, and the kernel has another boot ID.
func newMachine(dir string, boot int) (*machine, error) {
	h, err := host.New("/")
	if err != nil {
		return nil, err
	}
	if err := unix.DeleteModule("edu", unix.O_NONBLOCK); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("cannot unload the driver: %w", err)
	}
	const id = "/proc/sys/kernel/random/boot_id"
	_, err = os.Stat(fakeID)
	err = errors.Join(os.RemoveAll("/run/acceld"), os.WriteFile(fakeID, fmt.Appendf(nil, "%08d-0000-4000-8000-000000000002\n", boot), 0o444), func() error {
		if err == nil {
			return nil // mounted already
		}
		return unix.Mount(fakeID, id, "", unix.MS_BIND, "")
	}())
	if err != nil {
		return nil, err
	}
	m := &machine{dir: filepath.Join(dir, "acceld"), host: h, facts: detect.Detect(h, detect.Options{})}
	m.open(m.dir)
	return m, nil
}

// open makes the agent's manager of drivers with its files in dir.
func (m *machine) open(dir string) {
	m.driver = driver.New(m.host, driver.Options{
		StateDir: dir, Log: slog.New(listener{m}), Kernel: kernel{m}, StoreEntries: -1,
	})
}

// tell marks a step.
func (m *machine) tell(step string) {
	if m.mark != nil && m.err == nil {
		m.err = m.mark(step)
	}
}

// kernel is the running one. Whoever dies does so inside it, so it tells before it is called.
type kernel struct{ *machine }

func (k kernel) Load(_ context.Context, f *os.File, parameters string) error {
	k.tell("load")
	return unix.FinitModule(int(f.Fd()), parameters, 0)
}

func (k kernel) Unload(_ context.Context, name string) error {
	k.tell("unload")
	return unix.DeleteModule(name, unix.O_NONBLOCK)
}

// listener hears of each step of an upgrade, which is in the journal by then.
type listener struct{ *machine }

func (l listener) Enabled(context.Context, slog.Level) bool { return true }
func (l listener) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l listener) WithGroup(string) slog.Handler            { return l }

func (l listener) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "driver upgrade" {
		step := ""
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "step" {
				step = a.Value.String()
			}
			return true
		})
		l.tell("step " + step)
	}
	return nil
}

// wants is the definition with a version.
func wants(version string) (*accel.Definition, error) {
	defs, problem := vendors.Definitions()
	if problem != nil {
		return nil, problem
	}
	def := *defs[kind]
	def.Driver.Version = version
	def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: source, System: accel.BuildMake}}
	if version == broken {
		def.Driver.Version = one
		def.Driver.Modules = []accel.Module{{Name: "edu", Parameters: map[string]string{"fail_probe": "1"}}}
	}
	return &def, nil
}

func (m *machine) accelerators(def *accel.Definition) []accel.Accelerator {
	pci, _ := detect.PCI(m.host)
	accs := detect.Accelerators(m.host, def, pci)
	for i := range accs {
		accs[i].Health.State = accel.Healthy
	}
	return accs
}

// ensure makes a version serve, as a start of the agent does; upgrade replaces what serves by it.
func (m *machine) ensure(version string) (accel.DriverHave, *accel.Problem, error) {
	def, err := wants(version)
	if err != nil {
		return accel.DriverHave{}, nil, err
	}
	have, problem := m.driver.Ensure(context.Background(), def, m.facts, m.accelerators(def))
	return have, problem, m.err
}

func (m *machine) upgrade(version string) (accel.DriverHave, *accel.Problem, error) {
	def, err := wants(version)
	if err != nil {
		return accel.DriverHave{}, nil, err
	}
	have, problem := m.driver.Upgrade(context.Background(), def, m.facts, m.accelerators(def))
	return have, problem, m.err
}

func (m *machine) build(version string) (store.Entry, error) {
	def, err := wants(version)
	if err != nil {
		return store.Entry{}, err
	}
	e, problem := m.driver.Sources().Build(context.Background(), def, m.facts)
	if problem != nil {
		return e, fmt.Errorf("%w (tried %q)", problem, problem.Tried)
	}
	return e, m.err
}

func (m *machine) importBundle() error {
	def, err := wants("")
	if err != nil {
		return err
	}
	wanted := map[string]*accel.Definition{kind: def}
	_, _, problem := m.driver.Sources().Import(context.Background(), wanted, m.facts, bundle, nil)
	if problem != nil {
		return problem
	}
	return m.err
}

// makeSources puts source trees of the three versions into the guest, whose compiler is cp, and a bundle of what
// they give.
func makeSources() error {
	module, err := os.ReadFile(Module)
	if err != nil {
		return err
	}
	for _, v := range []string{one, two, three} {
		file, err := withVersion(module, v)
		if err != nil {
			return err
		}
		dir := strings.ReplaceAll(source, "{{.DriverVersion}}", v)
		err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "made"), file, 0o644),
			os.WriteFile(filepath.Join(dir, "Makefile"), []byte("modules:\n\tcp made edu.ko\n"), 0o644))
		if err != nil {
			return err
		}
	}
	m, err := newMachine("/tmp", 0)
	if err != nil {
		return err
	}
	m.open("/tmp/made")
	var entries []store.Entry
	for _, v := range []string{one, two, three} {
		e, err := m.build(v)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	if _, problem := m.driver.Sources().Export(m.facts, entries, bundle, nil); problem != nil {
		return problem
	}
	return nil
}

// withVersion is the module file with another version and build-id.
func withVersion(module []byte, version string) ([]byte, error) {
	from := []byte("\x00version=" + one + "\x00")
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	note := f.Section(".note.gnu.build-id")
	if bytes.Count(module, from) != 1 || note == nil {
		return nil, fmt.Errorf("cannot give %q another version", Module)
	}
	module = bytes.Replace(module, from, []byte("\x00version="+version+"\x00"), 1)
	module[note.Offset+note.Size-1] = version[0]
	return module, nil
}

// kept is what the areas of drivers promise: the files of the store and about upgrades, and what serves.
type kept struct {
	Files map[string]string
	Wants string // the configured version
	Holds string // the version that is chosen: what is loaded and has not computed yet is not
}

// lasting reports whether a file of the state is one that is promised. The rest is work, locks and logs.
func lasting(name string) bool {
	dir, rest, _ := strings.Cut(name, "/")
	switch dir {
	case "journal", "attempts", "requests":
		return !strings.HasPrefix(filepath.Base(name), ".")
	case "kmod":
		entry, file, _ := strings.Cut(rest, "/")
		return entry != "lock" && entry != "failed" && !strings.HasPrefix(filepath.Base(file), ".")
	}
	return false
}

// about reports whether a file says how far something has come: it is removed when it has ended, which need not last.
func about(name string) bool {
	return strings.HasPrefix(name, "journal/") || strings.HasPrefix(name, "attempts/") || strings.HasPrefix(name, "requests/")
}

// files returns those that are promised, with their text where they are short.
func (m *machine) files() (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(m.dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		short := strings.TrimPrefix(name, m.dir+"/")
		if !lasting(short) {
			return nil
		}
		b, err := os.ReadFile(name)
		out[short] = describe(b)
		if about(short) {
			out[short] = string(b)
			if len(b) == 0 {
				out[short] = empty
			}
		}
		return err
	})
	return out, err
}

// marking makes each step a mark.
func (m *machine) marking(version *string, mark Mark) {
	m.mark = func(step string) error {
		now, err := m.files()
		if err != nil {
			return err
		}
		entries, err := m.driver.List()
		if err != nil {
			return err
		}
		chosen := ""
		for _, e := range entries {
			if e.Current {
				chosen = e.Version
			}
		}
		return mark(step, kept{now, (*version)[:len(one)], chosen})
	}
}

// judgeDrivers is what both areas of drivers check.
func judgeDrivers(dir string, c Cut) (wrong Wrong, err error) {
	var before, after kept
	if err := errors.Join(json.Unmarshal(c.Before, &before), json.Unmarshal(c.After, &after)); err != nil {
		return wrong, err
	}
	m, err := newMachine(dir, c.Number+1)
	if err != nil {
		return wrong, err
	}
	now, err := m.files()
	if err != nil {
		return wrong, err
	}
	for _, name := range names(before.Files, after.Files, now) {
		is, was, wanted := now[name], before.Files[name], after.Files[name]
		removed := about(name) && was == "" && json.Valid([]byte(is)) // a moment ago, and that did not last
		if is != was && is != wanted && !removed {
			wrong.file(name, is, was, wanted)
		}
	}
	entries, err := m.driver.List()
	if err != nil {
		return wrong, err
	}
	for _, e := range entries {
		for _, s := range e.Modules {
			b, err := os.ReadFile(filepath.Join(e.Path, s.File))
			if sum := sha256.Sum256(b); e.Problem == "" && (err != nil || hex.EncodeToString(sum[:]) != s.SHA256) {
				wrong.broken("half an entry is taken for a whole one: version %s, %s (%d bytes, %v)", e.Version, s.File, len(b), err)
			}
		}
	}
	m.serves(before, after, &wrong)
	return wrong, nil
}

// serves starts the agent, with the old or the new configuration, and says what is wrong then.
func (m *machine) serves(before, after kept, wrong *Wrong) {
	want := after.Wants
	have, problem, err := m.ensure(want)
	if err != nil || !have.Serves {
		wrong.broken("no driver serves: %v %v (tried %q)", problem, err, tried(problem))
		return
	}
	if allowed := []string{before.Holds, after.Holds, before.Wants, want}; !slices.Contains(allowed, have.Version) {
		wrong.broken("version %s serves, it was to be one of %q", have.Version, allowed)
	}
	if have.Version != want {
		if have, problem, err = m.upgrade(want); err != nil || !have.Serves || have.Version != want {
			wrong.broken("the upgrade to %s ends with %s: %v %v (tried %q)", want, have.Version, problem, err, tried(problem))
		}
	}
	now, err := m.files()
	if err != nil {
		wrong.broken("%v", err)
	}
	for name, text := range now {
		// The marker of a load of another driver, which the machine did not survive, waits for the next load of that.
		if strings.HasPrefix(name, "journal/") || name == "attempts/"+have.Key+".json" && strings.Contains(text, `"open":true`) {
			wrong.broken("%s is still there: %s", name, text)
		}
	}
}

func tried(p *accel.Problem) []string {
	if p == nil {
		return nil
	}
	return p.Tried
}

// stores is the area of the store: drivers that are built, unpacked, chosen and removed.
type stores struct{}

// Prepare makes sources; the store is empty.
func (stores) Prepare(string) error { return makeSources() }

// Work fills the store and loads from it.
func (stores) Work(dir string, mark Mark) error {
	m, err := newMachine(dir, 0)
	if err != nil {
		return err
	}
	version := one
	m.marking(&version, mark)
	m.tell("start")
	if _, err := m.build(one); err != nil {
		return err
	}
	m.tell("built")
	if have, problem, err := m.ensure(one); err != nil || !have.Serves {
		return fmt.Errorf("version %s does not serve: %w, %w", one, problem, err)
	}
	m.tell("served")
	for _, v := range []string{three, two, three, one} {
		if err := m.importBundle(); err != nil {
			return err
		}
		m.tell("imported")
		version = v
		m.tell("configured")
		if have, problem, err := m.upgrade(v); err != nil || have.Version != v { // and what nothing needs is removed
			return fmt.Errorf("version %s does not serve: %w, %w", v, problem, err)
		}
		m.tell("upgraded")
	}
	return m.err
}

// Check judges the files, and starts the agent.
func (stores) Check(dir string, c Cut) (Wrong, error) { return judgeDrivers(dir, c) }

// upgrades is the area of the journal of upgrades and the markers of loads.
type upgrades struct{}

// Prepare makes version 1.0.0 serve.
func (upgrades) Prepare(dir string) error {
	if err := makeSources(); err != nil {
		return err
	}
	m, err := newMachine(dir, 0)
	if err != nil {
		return err
	}
	if err := m.importBundle(); err != nil {
		return err
	}
	if have, problem, err := m.ensure(one); err != nil || !have.Serves {
		return fmt.Errorf("version %s does not serve: %w, %w", one, problem, err)
	}
	return nil
}

// Work upgrades, also to what has to be taken back.
func (upgrades) Work(dir string, mark Mark) error {
	m, err := newMachine(dir, 0)
	if err != nil {
		return err
	}
	version := one
	if have, problem, err := m.ensure(one); err != nil || !have.Serves {
		return fmt.Errorf("version %s does not serve: %w, %w", one, problem, err)
	}
	m.marking(&version, mark)
	m.tell("start")
	for _, v := range []string{two, one, broken, two} {
		version = v
		m.tell("configured")
		have, problem, err := m.upgrade(v)
		switch {
		case err != nil:
			return err
		case v == broken && (problem == nil || problem.Reason != accel.RolledBack):
			return fmt.Errorf("a driver that fails was not taken back: %w", problem)
		case v != broken && have.Version != v:
			return fmt.Errorf("version %s does not serve: %w", v, problem)
		}
		m.tell("upgraded")
	}
	return m.err
}

// Check judges the files, and starts the agent.
func (upgrades) Check(dir string, c Cut) (Wrong, error) { return judgeDrivers(dir, c) }

// names are the keys of maps, each once, in order.
func names(all ...map[string]string) []string {
	var out []string
	for _, m := range all {
		for name := range m {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
