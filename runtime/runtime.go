package runtime

import (
	"cmp"
	"context"
	"log/slog"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/runtime/engine"
)

// Options are the settings of a Runtime.
type Options struct {
	// Log receives one line per changed file, and nothing in steady state.
	Log *slog.Logger
	// HookProgram is the path of the acceld-hook binary as this process sees it; Apply installs the file on the
	// host. If it is empty, a Want with Hook fails with HookMissing.
	HookProgram string
	// Ledger makes every change; if nil, one in the default state directory.
	Ledger *ledger.Ledger
	// Engine is the host's container runtime; it determines whether anything reads a hooks.d directory.
	Engine accel.ContainerEngine
	// Look detects the container runtime again; nil if it does not change.
	Look func() accel.ContainerEngine
	// Edit says which of the container runtime's files may be changed; engine.EditNever if empty.
	Edit engine.Edit
	// Restart says when the container runtime may be restarted; RestartNever if empty.
	Restart Restart
	// Retry repeats a change after which the runtime did not come back. Only a person may ask for that.
	Retry bool
	// Units control the container runtime's unit.
	Units Units
}

// Runtime gives the containers of one host access to its devices. Its methods may be called concurrently.
type Runtime struct {
	*files
	specs   specWriter
	links   links
	onHost  hostLinks
	client  *client
	config  *configuration
	restart *restarter

	applying sync.Mutex // one change of the runtime's configuration at a time
	mu       sync.Mutex // guards what follows
	hooks    *hooks
	program  *hookProgram
	engine   accel.ContainerEngine
	reads    accel.ContainerEngine // the container runtime that was last seen to read the specs
}

// begin locks and refreshes at the start of an exported method, and returns what unlocks.
func (r *Runtime) begin() (end func()) {
	r.mu.Lock()
	defer func() {
		if end == nil { // a panic, which must not leave the lock behind
			r.mu.Unlock()
		}
	}()
	// It looks again if there is none yet, or it has been restarted.
	if r.restart.look != nil && !r.host.Exists(path.Join("/proc", strconv.Itoa(r.engine.PID))) {
		if e := r.restart.look(); e.Name != "" {
			r.engine = e
		}
	}
	r.engine.Version = r.client.version(r.engine)
	said := r.client.configOf(r.engine).Crio.Runtime
	c, _ := r.config.read(r.engine) // a problem is reported elsewhere
	r.hooks.dirs = readHookDirs(r.engine, said.HooksDir, c)
	r.config.said = said.CDISpecDirs
	r.specs.dirs = r.readSpecDirs(c)
	return r.mu.Unlock
}

// readSpecDirs returns the directories of CDI specs: the default ones, and those that the container runtime's files or
// command line name, or that a running CRI-O says that it reads.
func (r *Runtime) readSpecDirs(c *engine.Config) []string {
	dirs := specDirs()
	places := map[string]bool{}
	for _, dir := range dirs {
		places[r.place(dir)] = true
	}
	more := r.config.said
	if c != nil {
		more = slices.Concat(c.SpecDirs, more)
	}
	for _, dir := range more {
		if path.IsAbs(dir) && !engine.Reads(dirs, dir) && !places[r.place(dir)] {
			dirs = append(dirs, path.Clean(dir))
			places[r.place(dir)] = true
		}
	}
	return dirs
}

// place returns a directory without the links in its path.
func (r *Runtime) place(dir string) string {
	place, err := r.host.Follow(dir)
	if err != nil {
		return path.Clean(dir)
	}
	return place
}

// New returns the Runtime of h.
func New(h *host.Host, o Options) *Runtime {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	self, err := host.New("/")
	if err != nil {
		self = h // a process without a root directory; the program is then reported as missing
	}
	changes := o.Ledger
	if changes == nil {
		if changes, err = ledger.Open(h, stateDir, log); err != nil {
			panic(err) // the directory is a constant
		}
	}
	f := &files{host: h, ledger: changes, log: log, outdated: h.ViewOutdated}
	cl := &client{host: h, live: h.Live}
	hd := &hooks{files: f, client: cl}
	restart := &restarter{
		files: f, client: cl, look: o.Look, policy: cmp.Or(o.Restart, RestartNever), units: o.Units,
		edit: cmp.Or(o.Edit, engine.EditNever), retry: o.Retry,
		patience: patience{comeback: 30 * time.Second, settle: 5 * time.Second, again: 250 * time.Millisecond},
	}
	return &Runtime{
		files: f, specs: specWriter{f, specDirs()}, links: links{f}, onHost: hostLinks{f}, client: cl,
		restart: restart,
		config:  &configuration{files: f, client: cl, read: engine.NewReader(h).Read, restart: restart},
		hooks:   hd, engine: o.Engine,
		program: &hookProgram{files: f, self: self, source: o.HookProgram, digests: map[string]digest{}},
	}
}

// Check compares the host's files with those that accs need, and changes nothing. Applied is true if the spec (or
// its absence) is byte for byte right, and so are the hook's JSON and its program if want asks for them, and the
// links in /dev/char are right. A Problem says what Apply would fail with: SpecConflict, SpecInvalid, HookMissing,
// or a file that cannot be read. Otherwise it is NotHonored: why the runtime ignores files that are right.
func (r *Runtime) Check(def *accel.Definition, accs []accel.Accelerator, want accel.Want) (accel.RuntimeHave,
	*accel.Problem,
) {
	defer r.begin()()
	return r.check(def, accs, want)
}

func (r *Runtime) check(def *accel.Definition, accs []accel.Accelerator, want accel.Want) (accel.RuntimeHave,
	*accel.Problem,
) {
	var have accel.RuntimeHave
	program, installed, p := r.program.locate(want)
	if p != nil {
		return have, p
	}
	spec, p := r.specs.render(def, accs, want, program)
	if p != nil {
		return have, p
	}
	right, p := r.specs.right(spec)
	if p != nil {
		return have, p
	}
	linked := r.links.right(spec.nodes) && r.onHost.right(def)
	json, hooked := r.hooks.locateJSON(want, program)
	if len(spec.bytes) > 0 || !right { // a spec of devices that are gone is still there
		have.Spec = spec.path
	}
	if len(spec.bytes) > 0 {
		have.Devices, have.LibraryMissing = spec.devices, r.specs.missing(def)
	}
	have.Hook = json
	have.Applied = right && linked && hooked && installed
	if !have.Applied && hooked && installed {
		have.AppliedTo = r.specs.appliedTo(spec)
	}
	switch {
	case want.CDI && len(spec.bytes) > 0:
		have.NotHonored = r.unread()
	case !want.CDI && json != "": // the JSON is the only carrier of the gate
		have.NotHonored = r.hooks.unread(r.engine, path.Dir(json))
	}
	return have, have.NotHonored
}

// unread is the problem of specs that the container runtime does not read, or does not read yet. It is nil if it
// reads them, or if there is no runtime that acceld knows.
func (r *Runtime) unread() *accel.Problem {
	if r.engine.Name == "" {
		return nil
	}
	rep, p := r.config.report(r.engine)
	if p == nil {
		p = rep.unread()
	}
	switch {
	case p == nil:
		r.reads = r.engine
	case p.Reason != accel.RuntimeRestartNeeded && r.client.running(r.engine) && reflect.DeepEqual(r.reads, r.engine):
		// The files are being edited, or are for the daemon's next start: the running daemon has read other files.
		return nil
	}
	return p
}

// Apply makes the host's files those that accs need, and writes only what differs: the hook's program, the links in
// /dev/char, the spec, the hook's JSON. It returns the state afterwards. If it is killed on any line, a later Apply
// converges, and no file ever names a program that does not exist.
//
// On a SpecConflict nothing is published, and a spec of ours that already exists stays. While two files define one
// device, the runtime gives out neither; without ours it would give out a device that we do not gate.
//
// If the container runtime does not read the specs, its configuration is changed first, as by ApplyConfig. If that
// change waits for a restart, the files are written anyway, and the returned problem says so.
func (r *Runtime) Apply(def *accel.Definition, accs []accel.Accelerator, want accel.Want) (accel.RuntimeHave,
	*accel.Problem,
) {
	if want.CDI && r.configure() {
		// The check at the end reports these two problems; any other is not visible in the files and is returned
		// here.
		ctx, cancel := context.WithTimeout(context.Background(), restartLimit)
		defer cancel()
		if _, p := r.ApplyConfig(ctx); p != nil && p.Reason != accel.RuntimeRestartNeeded &&
			p.Reason != accel.RuntimeMissingCDI {
			return accel.RuntimeHave{}, p
		}
	}
	defer r.begin()()
	program, p := r.program.install(want)
	if p != nil {
		return accel.RuntimeHave{}, p
	}
	spec, p := r.specs.render(def, accs, want, program)
	if p != nil {
		return accel.RuntimeHave{}, p
	}
	if p := r.links.create(spec.nodes); p != nil {
		return accel.RuntimeHave{}, p
	}
	if p := r.onHost.apply(def); p != nil {
		return accel.RuntimeHave{}, p
	}
	if p := r.specs.publish(spec); p != nil {
		return accel.RuntimeHave{}, p
	}
	if p := r.hooks.installJSON(want, program); p != nil {
		return accel.RuntimeHave{}, p
	}
	named := append(r.specs.programs(), r.hooks.programInJSON())
	if p := r.program.removeOld(program, named); p != nil {
		return accel.RuntimeHave{}, p
	}
	return r.check(def, accs, want)
}

// restartLimit is how long Apply may take for a restart of the container runtime and one more after reverting.
const restartLimit = 3 * time.Minute

// configure reports whether there is a container runtime whose configuration may be changed.
func (r *Runtime) configure() bool {
	defer r.begin()()
	return r.engine.Name != "" && r.restart.edit != engine.EditNever
}

// Remove withdraws the kind from the container runtime. The spec goes first, so that no new container gets a device.
// If no other kind of acceld is left in the CDI directory, the hook's JSON and then its programs go too. The links
// in /dev/char stay: they are right as long as the device exists, and others may rely on them.
func (r *Runtime) Remove(def *accel.Definition) *accel.Problem {
	defer r.begin()()
	file, p := specPath(def)
	if p == nil {
		p = r.remove(file)
	}
	if p == nil {
		p = r.onHost.clear(def.Kind, nil)
	}
	if p != nil {
		return p
	}
	if len(r.specs.programs()) > 0 {
		return nil
	}
	if p := r.hooks.removeJSON(); p != nil {
		return p
	}
	return r.program.removeOld("", nil)
}

// Sources returns the directories of the container runtime's configuration, as the host sees them, whether or not
// they exist. A change in them may help after a failed Apply.
func (r *Runtime) Sources() []string {
	defer r.begin()()
	if r.engine.Name == "" {
		return nil
	}
	return engine.Dirs(r.host, r.engine)
}

// Paths returns the directories, as the host sees them, in which a change may change the result of Check, except
// those of Sources. Some may not exist yet.
func (r *Runtime) Paths() []string {
	defer r.begin()()
	paths := append(slices.Clone(r.specs.dirs), linkDir)
	if socket, ok := strings.CutPrefix(r.engine.Endpoint, "unix://"); ok { // each start of the runtime creates it again
		paths = append(paths, path.Dir(socket))
	}
	if r.program.source == "" {
		return paths
	}
	paths = append(paths, r.hooks.dirs...)
	if sum, err := r.program.sum(r.program.self, r.program.source); err == nil {
		for _, dir := range programDirs() {
			paths = append(paths, path.Dir(programPath(dir, sum)))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
