package vm

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
	"github.com/acceld/acceld/test/vm/seed"
	"github.com/acceld/acceld/test/vm/supply"
)

type (
	// Options say what guest a scenario wants.
	Options = bed.Options
	// Reboot is how a guest is restarted.
	Reboot = bed.Reboot
	// Result is how a command in the guest ended.
	Result = bed.Result
	// File is a file in an image.
	File = image.File
)

// The container runtimes of [Options].
const (
	CRIO       = seed.CRIO
	Containerd = seed.Containerd
)

// NodeName is the node's name in its cluster.
const NodeName = bed.NodeName

// Require skips the test unless ACCELD_TESTBED=1 asks for the test bed. With it, whatever is missing is a failure.
func Require(t testing.TB) {
	t.Helper()
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("needs the test bed: set ACCELD_TESTBED=1 (it builds a virtual machine, see test/vm)")
	}
}

// patience bounds every single step of a scenario, on a machine that is emulated and busy.
const patience = 5 * time.Minute

// Guest is a light guest, or the machine of a Node. Its methods end the test on failure.
type Guest struct {
	// Core has the same methods with a context and an error.
	Core *bed.Guest
	t    testing.TB
}

// StartLight starts a guest that has Debian's programs, busybox for an init, and no memory of its writes. It is stopped
// when the test ends.
func StartLight(t testing.TB, o Options) *Guest {
	t.Helper()
	b := open(t)
	core, err := b.StartLight(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			report(t, core.Collect)
		}
		core.Stop()
	})
	return &Guest{Core: core, t: t}
}

// open opens the bed for one test.
func open(t testing.TB) *bed.Bed {
	t.Helper()
	Require(t)
	b, err := bed.Open(t.Context(), os.Stderr, supply.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// report keeps what explains a failure. The test's own context has ended by then.
func report(t testing.TB, collect func(context.Context, string) (string, error)) {
	dir, err := collect(context.Background(), t.Name())
	if err != nil {
		t.Logf("cannot keep what explains the failure: %v", err)
	}
	t.Logf("what explains the failure is kept in %s", dir)
}

// step gives one step of a scenario its time.
func (g *Guest) step() (context.Context, context.CancelFunc) {
	return context.WithTimeout(g.t.Context(), patience)
}

func (g *Guest) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// Run runs a command with its arguments as they are: no shell looks at them. How the command ended is in the result.
func (g *Guest) Run(argv ...string) Result {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	r, err := g.Core.Run(ctx, argv...)
	g.check(err)
	return r
}

// MustRun is Run for a command that has to succeed. It returns the standard output.
func (g *Guest) MustRun(argv ...string) string {
	g.t.Helper()
	return g.succeeded(argv, g.Run(argv...))
}

// Sh runs a fixed script with `set -eu`; arguments are its $1, $2, …, and never part of the script.
func (g *Guest) Sh(script string, args ...string) Result {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	r, err := g.Core.Sh(ctx, script, args...)
	g.check(err)
	return r
}

// MustSh is Sh for a script that has to succeed. It returns the standard output.
func (g *Guest) MustSh(script string, args ...string) string {
	g.t.Helper()
	return g.succeeded([]string{script}, g.Sh(script, args...))
}

func (g *Guest) succeeded(argv []string, r Result) string {
	g.t.Helper()
	if !r.OK() {
		g.t.Fatalf("%q ended with status %d\n%s%s", argv, r.Status, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// Put copies a local file into the guest.
func (g *Guest) Put(local, path string, mode os.FileMode) {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	g.check(g.Core.Put(ctx, local, path, mode))
}

// Get copies a file of the guest to a local one.
func (g *Guest) Get(path, local string) {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	g.check(g.Core.Get(ctx, path, local))
}

// WriteFile writes a file in the guest, atomically, and makes missing folders.
func (g *Guest) WriteFile(path, content string, mode os.FileMode) {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	g.check(g.Core.WriteFile(ctx, path, []byte(content), mode))
}

// ReadFile reads a file of the guest.
func (g *Guest) ReadFile(path string) string {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	content, err := g.Core.ReadFile(ctx, path)
	g.check(err)
	return string(content)
}

// Plug puts an accelerator into a slot of the running guest.
func (g *Guest) Plug(slot int) {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	g.check(g.Core.Plug(ctx, slot))
}

// Unplug takes the accelerator out of a slot and returns when the guest has let go of it.
func (g *Guest) Unplug(slot int) {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	g.check(g.Core.Unplug(ctx, slot))
}

// Kill sends a signal, such as "KILL", to a process of the guest.
func (g *Guest) Kill(pid int, signal string) {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	g.check(g.Core.Kill(ctx, pid, signal))
}

// CutNetwork takes the cable out of the card that leads to the cluster and the registry; commands still work.
func (g *Guest) CutNetwork() {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	g.check(g.Core.CutNetwork(ctx))
}

// RestoreNetwork puts the cable back.
func (g *Guest) RestoreNetwork() {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	g.check(g.Core.RestoreNetwork(ctx))
}

// Reboot restarts the guest with the accelerators that are plugged now, and waits until it answers again.
func (g *Guest) Reboot(r Reboot) {
	g.t.Helper()
	ctx, cancel := g.step()
	defer cancel()
	g.check(g.Core.Reboot(ctx, r))
}
