package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/channel"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/qemu"
	"github.com/acceld/acceld/test/vm/seed"
)

// Guest is a running virtual machine. Commands reach it over a network card of their own, so they work while the
// cluster's network is cut.
type Guest struct {
	bed     *Bed
	kind    seed.Kind
	engine  seed.Engine
	member  seed.Member
	dir     string
	config  qemu.Config
	machine *qemu.Machine
	log     *os.File // QEMU's own words
	sshPort int
	leave   func()      // gives its place back; nil for a guest that has none of its own
	disk    *cachedDisk // nil for a disk that forgets nothing

	mu     sync.Mutex // guards what follows
	client *channel.Client
}

// Result is how a command in the guest ended.
type Result struct {
	Stdout, Stderr string
	// Status is the exit status, or 128 plus the signal's number.
	Status int
}

// OK tells whether the command succeeded.
func (r Result) OK() bool { return r.Status == 0 }

// bootTimeout is for an emulated guest on a busy machine; an idle one needs about half a minute.
const bootTimeout = 4 * time.Minute

// powerOn starts the machine from g.config and does not wait for what runs inside.
func (g *Guest) powerOn(ctx context.Context) error {
	ports, err := cluster.FreePorts(2)
	if err != nil {
		return err
	}
	g.sshPort = ports[1]
	g.config.Forward = map[int]int{seed.GuestdPort: ports[0], seed.SSHPort: ports[1]}
	g.machine, err = qemu.Start(ctx, g.bed.starter, g.config, g.log)
	if err != nil {
		output, _ := os.ReadFile(g.log.Name())
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}

// rise powers the guest on and waits until it answers. Very rarely QEMU itself dies of a signal while the kernel lays
// out the PCI bus on two emulated processors, or an emulated kernel stops for good before it has mounted its root. That
// says nothing of the guest, so the start is tried again, once, if nothing was written meanwhile: what QEMU had not yet
// written of the disk image is lost with it.
func (g *Guest) rise(ctx context.Context, networkCut bool) error {
	for again := false; ; again = true {
		began, said := time.Now(), len(g.consoleText())
		if err := g.powerOn(ctx); err != nil {
			return err
		}
		if networkCut {
			if err := g.CutNetwork(ctx); err != nil {
				return err
			}
		}
		err := g.answer(ctx, said)
		died := errors.Is(err, errStopped) || g.machine.Crashed()
		if err == nil || again || !died || g.wroteSince(began) {
			return err
		}
		g.bed.log.Say("the guest is started once more: %v", err)
		g.machine.Stop()
	}
}

func (g *Guest) wroteSince(moment time.Time) bool {
	info, err := os.Stat(g.config.Disk)
	return err != nil || info.ModTime().After(moment)
}

// What emulation can do to a kernel while it boots.
var (
	errStopped   = errors.New("its kernel has stopped before it had a root")
	errTimerLost = errors.New("its kernel says that a processor has no timer any more")
)

// hopeless returns why a kernel that is booting will never answer, or nil. It judges by what the kernel has written to
// the console since power-on, and by how long it has been silent.
func hopeless(console string, quiet time.Duration) error {
	switch {
	case strings.Contains(console, "rcu: \tPossible timer handling issue on cpu="):
		return errTimerLost
	case quiet > silence && rootless(console):
		return errStopped
	}
	return nil
}

// silence is how long a guest's kernel may write nothing to the console before it has mounted its root. On a busy
// machine that takes ten seconds in all.
const silence = 90 * time.Second

// rootless reports whether a guest with a disk has not mounted it, as its kernel says since it was switched on.
func rootless(console string) bool { return !strings.Contains(console, "EXT4-fs (vda): mounted") }

// alreadyUp is for a guest that does not boot.
const alreadyUp = -1

// answer waits until the guest answers. Very rarely an emulated processor loses its timer while the kernel boots:
// then it presses the reset button, once, as a person would.
func (g *Guest) answer(ctx context.Context, said int) error {
	err := g.connect(ctx, said)
	if !errors.Is(err, errTimerLost) {
		return err
	}
	g.bed.log.Say("the guest is reset: %v\n%s", err, g.machine.Processors(ctx))
	if said, err = g.reset(ctx); err != nil {
		return err
	}
	return g.connect(ctx, said)
}

// reset presses the reset button. It returns how much the console had written before.
func (g *Guest) reset(ctx context.Context) (said int, err error) {
	said = len(g.consoleText())
	if err := g.machine.Reset(ctx); err != nil {
		return 0, err
	}
	g.disconnect()
	return said, nil
}

// connect waits until the guest answers. Said is how much the console had written before the guest was switched on, or
// alreadyUp.
func (g *Guest) connect(ctx context.Context, said int) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	began := time.Now()
	looked := began
	for {
		_, err := g.channel(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-g.machine.Done():
			words, _ := os.ReadFile(g.log.Name())
			return fmt.Errorf("cannot wait for the guest: it switched itself off: %w\n%s%s", g.machine.Ended(), words,
				g.consoleTail())
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the guest: %w\n%s", err, g.consoleTail())
		case <-time.After(50 * time.Millisecond):
		}
		if g.kind == seed.Light || said == alreadyUp || time.Since(looked) < time.Second {
			continue
		}
		looked = time.Now()
		if err := hopeless(g.consoleText()[said:], g.quietSince(began)); err != nil {
			return fmt.Errorf("cannot wait for the guest: %w\n%s", err, g.consoleTail())
		}
	}
}

// quietSince returns how long the console has been silent: since its last output, or since the given moment if that is
// later.
func (g *Guest) quietSince(moment time.Time) time.Duration {
	if info, err := os.Stat(g.config.Console); err == nil && info.ModTime().After(moment) {
		moment = info.ModTime()
	}
	return time.Since(moment)
}

// channel returns a live connection to the guest.
func (g *Guest) channel(ctx context.Context) (*channel.Client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// A guest that died leaves connections that never end by themselves.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if g.client != nil {
		if g.client.Alive(ctx) {
			return g.client, nil
		}
		g.client.Close()
		g.client = nil
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(g.config.Forward[seed.GuestdPort]))
	client, err := channel.Dial(ctx, address, g.bed.keys.client, g.bed.keys.host.PublicKey())
	g.client = client
	return client, err
}

// disconnect drops the connection, because the other end is about to forget it.
func (g *Guest) disconnect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.client != nil {
		g.client.Close()
		g.client = nil
	}
}

// Run runs a command with its arguments as they are: no shell looks at them. The error is about the way to the guest;
// how the command ended is in the result.
func (g *Guest) Run(ctx context.Context, argv ...string) (Result, error) {
	return g.do(ctx, channel.Request{Argv: argv}, nil)
}

// RunInput is Run with an input.
func (g *Guest) RunInput(ctx context.Context, input io.Reader, argv ...string) (Result, error) {
	return g.do(ctx, channel.Request{Argv: argv}, input)
}

// Sh runs a fixed script; arguments are its $1, $2, …, and never part of the script.
func (g *Guest) Sh(ctx context.Context, script string, args ...string) (Result, error) {
	return g.Run(ctx, append([]string{"sh", "-euc", script, "sh"}, args...)...)
}

// Start starts a command that goes on while the scenario does other things.
func (g *Guest) Start(ctx context.Context, stdout, stderr io.Writer, argv ...string) (*channel.Session, error) {
	client, err := g.channel(ctx)
	if err != nil {
		return nil, err
	}
	return client.Start(channel.Request{Argv: argv}, nil, stdout, stderr)
}

func (g *Guest) do(ctx context.Context, request channel.Request, input io.Reader) (Result, error) {
	client, err := g.channel(ctx)
	if err != nil {
		return Result{}, err
	}
	stdout, stderr, status, err := client.Do(ctx, request, input)
	result := Result{Stdout: string(stdout), Stderr: string(stderr), Status: status}
	if err != nil {
		return result, fmt.Errorf("cannot run %q in the guest: %w", request.Argv, err)
	}
	return result, nil
}

// WriteFile writes a file in the guest, atomically, and makes missing folders.
func (g *Guest) WriteFile(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	return g.put(ctx, bytes.NewReader(content), path, mode)
}

// Put copies a local file into the guest.
func (g *Guest) Put(ctx context.Context, local, path string, mode fs.FileMode) error {
	file, err := os.Open(local)
	if err != nil {
		return fmt.Errorf("cannot put a file into the guest: %w", err)
	}
	defer file.Close()
	return g.put(ctx, file, path, mode)
}

func (g *Guest) put(ctx context.Context, content io.Reader, path string, mode fs.FileMode) error {
	r, err := g.do(ctx, channel.Request{Put: path, Mode: mode}, content)
	if err == nil && !r.OK() {
		err = errors.New(strings.TrimSpace(r.Stderr))
	}
	return err
}

// ReadFile reads a file of the guest.
func (g *Guest) ReadFile(ctx context.Context, path string) ([]byte, error) {
	r, err := g.do(ctx, channel.Request{Get: path}, nil)
	if err == nil && !r.OK() {
		err = errors.New(strings.TrimSpace(r.Stderr))
	}
	return []byte(r.Stdout), err
}

// Get copies a file of the guest to a local one.
func (g *Guest) Get(ctx context.Context, path, local string) error {
	content, err := g.ReadFile(ctx, path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(local, content, 0o644); err != nil {
		return fmt.Errorf("cannot get a file from the guest: %w", err)
	}
	return nil
}

// Kill sends a signal, such as "KILL" or "9", to a process of the guest.
func (g *Guest) Kill(ctx context.Context, pid int, signal string) error {
	r, err := g.Run(ctx, "kill", "-s", signal, strconv.Itoa(pid))
	if err == nil && !r.OK() {
		err = fmt.Errorf("cannot signal process %d: %s", pid, strings.TrimSpace(r.Stderr))
	}
	return err
}

// Dial connects to an address as the guest sees it.
func (g *Guest) Dial(ctx context.Context, address string) (net.Conn, error) {
	client, err := g.channel(ctx)
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, address)
}

// Plug puts an accelerator into a slot, 0 to qemu.Slots-1, of the running guest.
func (g *Guest) Plug(ctx context.Context, slot int) error {
	if err := g.machine.Plug(ctx, slot); err != nil {
		return err
	}
	g.config.Plugged = append(g.config.Plugged, slot)
	return nil
}

// Unplug takes the accelerator out of a slot and returns when the guest has let go of it.
func (g *Guest) Unplug(ctx context.Context, slot int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := g.machine.Unplug(ctx, slot); err != nil {
		return err
	}
	g.config.Plugged = slices.DeleteFunc(g.config.Plugged, func(s int) bool { return s == slot })
	return nil
}

// CutNetwork takes the cable out of the card that leads to the cluster and the registry.
func (g *Guest) CutNetwork(ctx context.Context) error { return g.machine.SetLink(ctx, false) }

// RestoreNetwork puts the cable back.
func (g *Guest) RestoreNetwork(ctx context.Context) error { return g.machine.SetLink(ctx, true) }

// Monitor is QEMU's monitor, for what only one scenario needs.
func (g *Guest) Monitor() *qemu.Monitor { return g.machine.Monitor }

// Key tells guests whose disks differ apart.
func (g *Guest) Key() string { return g.bed.supply.Debian.Key() + " " + g.config.Kernel }

// Tree is a folder of this machine with the files of the guest's disk; see [disk.Debian.Tree].
func (g *Guest) Tree() string { return g.bed.supply.Debian.Tree() }

// Kernel is the release of the guest's kernel, as uname -r prints it.
func (g *Guest) Kernel() string {
	return strings.TrimPrefix(filepath.Base(g.config.Kernel), "vmlinuz-")
}

// Keep is an entry of the bed's cache, for what a scenario makes and the next one needs too; see [cache.Dir.Entry].
func (g *Guest) Keep(ctx context.Context, kind string, key *cache.Key, build func(tmp string) error) (string, error) {
	return g.bed.cache.Entry(ctx, kind, key, build)
}

// PID is QEMU's process id on the host.
func (g *Guest) PID() int { return g.machine.PID() }

// SSH is the command that a person types to get in.
func (g *Guest) SSH() string {
	return fmt.Sprintf(
		"ssh -i %s -p %d -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR root@127.0.0.1",
		g.bed.ClientKey(), g.sshPort)
}

// Console is the file with everything the serial console said.
func (g *Guest) Console() string { return g.config.Console }

// consoleText is all that the guest has written to its serial console; empty before it has begun.
func (g *Guest) consoleText() string {
	content, _ := os.ReadFile(g.config.Console)
	return string(content)
}

func (g *Guest) consoleTail() string {
	const most = 3000
	text := g.consoleText()
	return "end of the serial console:\n" + text[max(0, len(text)-most):]
}

// Stop switches the guest off at once and removes what it wrote.
func (g *Guest) Stop() {
	g.disconnect()
	if g.machine != nil {
		g.machine.Stop()
	}
	if g.disk != nil {
		g.disk.close()
	}
	if g.log != nil {
		g.log.Close()
	}
	os.RemoveAll(g.dir)
	if g.leave != nil {
		g.leave()
	}
}

// Dir is the folder of this guest's run, removed by Stop.
func (g *Guest) Dir() string { return g.dir }

func (g *Guest) file(name string) string { return filepath.Join(g.dir, name) }

// Program is the path of a built program on this host, such as "kubectl".
func (g *Guest) Program(name string) string { return g.bed.Program(name) }
