// Package faults runs the fault injections that acceld is measured by, one test for each, named by its number.
// README.md is their table: what is done to the machine, what must come of it, and what cannot be done here. It needs
// ACCELD_TESTBED=1, root and QEMU, and skips without the first.
package faults

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/channel"
	"github.com/acceld/acceld/test/vm/supply"
)

// soon is for what follows an event: generous, because an emulated machine is slow and noisy. How long it took is
// logged.
const soon = 4 * time.Minute

// building is for what has to compile the driver first.
const building = 8 * time.Minute

// shop is what every test of this process uses.
type shop struct {
	bed   *bed.Bed
	stage *stage.Stage
	dir   string
	node  *bed.Node // that the tests of the container runtime share
}

var open shop

func TestMain(m *testing.M) {
	code := m.Run()
	open.close()
	os.Exit(code)
}

func (s *shop) close() {
	s.closeNode()
	if s.bed != nil {
		s.bed.Close()
		os.RemoveAll(s.dir)
	}
}

// closeNode ends the shared node: nobody may hold a guest and wait for another.
func (s *shop) closeNode() {
	if s.node != nil {
		s.node.Stop()
		s.node = nil
	}
}

// enter opens the shop for the first test that needs it.
func enter(t *testing.T) *shop {
	t.Helper()
	vm.Require(t)
	if open.bed != nil {
		return &open
	}
	b, err := bed.Open(t.Context(), os.Stderr, supply.Config{})
	if err != nil {
		t.Fatal(err)
	}
	open = shop{bed: b}
	if open.dir, err = os.MkdirTemp("", "faults-"); err != nil {
		t.Fatal(err)
	}
	if open.stage, err = stage.New(t.Context(), open.dir); err != nil {
		t.Fatal(err)
	}
	return &open
}

// scene is a guest with acceld's programs on it, the driver's source, and no agent running yet.
type scene struct {
	*testing.T
	g *bed.Guest
	s *stage.Stage
	// light says that there is no systemd; agent is then the one that runs.
	light bool
	agent *channel.Session
}

// host starts a guest with systemd, that keeps what is written through a reboot.
func host(t *testing.T, o bed.Options) *scene {
	t.Helper()
	o.NoKubernetes = true
	sh := enter(t)
	sh.closeNode()
	n, err := sh.bed.StartNode(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, n) })
	c := &scene{T: t, g: n.Guest, s: sh.stage}
	c.must(sh.stage.Units(t.Context(), n.Guest, ""))
	c.must(sh.stage.Source(t.Context(), n.Guest))
	return c
}

// light starts a guest without systemd, which is quick to boot with a command line of its own.
func light(t *testing.T, o bed.Options) *scene {
	t.Helper()
	sh := enter(t)
	sh.closeNode()
	g, err := sh.bed.StartLight(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, &bed.Node{Guest: g}) })
	c := &scene{T: t, g: g, s: sh.stage, light: true}
	for _, p := range []string{"acceld", "acceld-hook", "edu-check"} {
		c.must(g.Put(t.Context(), sh.stage.Program(p), "/usr/bin/"+p, 0o755))
	}
	c.must(sh.stage.Source(t.Context(), g))
	return c
}

// stop ends a guest; of a failed test the bed keeps what tells why.
func stop(t *testing.T, n *bed.Node) {
	if t.Failed() {
		dir, err := n.Collect(context.Background(), t.Name())
		t.Logf("what explains the failure is kept in %s (%v)", dir, err)
	}
	n.Stop()
}

// store puts a version of the driver into the guest's store, built.
func (c *scene) store(version string) {
	c.Helper()
	begin := time.Now()
	c.must(c.s.Store(c.within(building), c.g, version))
	c.Logf("%-70s %6.2f s", "version "+version+" of the driver is in the store", time.Since(begin).Seconds())
}

func (c *scene) must(err error) {
	c.Helper()
	stage.Check(c, err)
}

func (c *scene) within(d time.Duration) context.Context { return stage.Within(c, d) }

// sh runs a fixed script in the guest, which must succeed, and returns what it said.
func (c *scene) sh(script string, args ...string) string {
	c.Helper()
	return stage.Sh(c, c.g, soon, script, args...)
}

// slow is sh for what takes minutes.
func (c *scene) slow(script string, args ...string) string {
	c.Helper()
	return stage.Sh(c, c.g, building, script, args...)
}

// says runs a script that may fail, and returns its status and everything that it said.
func (c *scene) says(script string, args ...string) (string, int) {
	c.Helper()
	res, err := c.g.Sh(c.within(building), script, args...)
	c.must(err)
	return res.Stdout + res.Stderr, res.Status
}

// config replaces the agent's configuration; it is read at the next start.
func (c *scene) config(text string) {
	c.Helper()
	c.must(c.g.WriteFile(c.Context(), "/etc/acceld/config.yaml", []byte(text), 0o644))
}

// start starts the agent, again if it runs.
func (c *scene) start() {
	c.Helper()
	if c.light {
		c.halt()
		var err error
		c.agent, err = c.g.Start(c.Context(), nil, nil, "acceld", "run")
		c.must(err)
		return
	}
	c.sh(
		"systemctl reset-failed acceld.service 2>/dev/null || true; systemctl stop acceld.service; systemctl restart acceld.socket acceld.service")
}

// halt stops the agent and leaves everything else as it is.
func (c *scene) halt() {
	c.Helper()
	if c.light {
		if c.agent != nil {
			c.must(c.agent.Signal("TERM"))
			_, err := c.agent.Wait(c.within(soon))
			c.must(err)
			c.agent = nil
		}
		return
	}
	c.sh("systemctl stop acceld.socket acceld.service")
}

func (c *scene) machine() accel.Machine {
	c.Helper()
	m, err := stage.Machine(c.Context(), c.g)
	c.must(err)
	return m
}

// reaches waits for a state of the kind, logs how long that took and returns the machine.
func (c *scene) reaches(what string, state accel.State, d time.Duration) accel.Machine {
	c.Helper()
	return c.await(fmt.Sprintf("%s -> %s", what, state), d, stage.InState(state))
}

// blocked waits until the kind is blocked for a reason and returns that.
func (c *scene) blocked(what string, reason accel.Reason, d time.Duration) *accel.Failure {
	c.Helper()
	m := c.await(fmt.Sprintf("%s -> %s", what, reason), d, stage.Blocked(reason))
	f := m.Status[stage.Kind].Blocked
	c.Logf("  the sentence: %s", f.Message)
	return f
}

func (c *scene) await(what string, d time.Duration, ok func(accel.Machine) bool) accel.Machine {
	c.Helper()
	begin := time.Now()
	m, err := stage.WaitMachine(c.within(d), c.g, what, ok)
	c.must(err)
	c.Logf("%-70s %6.2f s", what, time.Since(begin).Seconds())
	return m
}

// until waits for a script to succeed.
func (c *scene) until(what, condition string, args ...string) {
	c.Helper()
	begin := time.Now()
	// Each look takes some of the emulated processor from what is looked for.
	c.sh("for i in $(seq 150); do if "+condition+"; then exit 0; fi; sleep 0.3; done; exit 1", args...)
	c.Logf("%-70s %6.2f s", what, time.Since(begin).Seconds())
}

// healthy is a predicate for await: so many devices are usable.
func healthy(n int) func(accel.Machine) bool {
	return func(m accel.Machine) bool {
		return accel.CountUsable(m.Have[stage.Kind].Accelerators) == n && m.Status[stage.Kind].State == accel.Ready
	}
}

// countLoads makes the kernel count how often anybody asks it to load or unload a module, and loads returns the number.
// What udev still loads for other devices after a boot does not count.
func (c *scene) countLoads() (loads func() int) {
	c.Helper()
	c.sh(`mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
cd /sys/kernel/tracing; : > trace
for call in init_module finit_module delete_module; do echo 1 > events/syscalls/sys_enter_$call/enable; done`)
	return func() int {
		c.Helper()
		var n int
		_,
			err := fmt.Sscan(
			c.sh(
				`grep 'sys_\(f\?init\|delete\)_module(' /sys/kernel/tracing/trace | grep -vc '^ *\((udev-worker)\|systemd-\)' || true`),
			&n)
		c.must(err)
		return n
	}
}
