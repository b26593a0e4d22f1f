package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	bus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// pipeDelay limits the wait for the output that a killed program left in its pipe.
const pipeDelay = 5 * time.Second

// busTime limits each request to systemd, so that its callers never wait forever.
const busTime = 10 * time.Second

// systemdScope is a transient scope unit. A process of ours waits in it, so that the scope, and what the kernel
// counted in it, remains until the last program has exited.
type systemdScope struct {
	conn  *dbus.Conn
	name  string
	path  string
	kept  <-chan error // receives the end of the waiting process; nil before its start
	leave io.Closer
}

func openSystemdScope(ctx context.Context, h *Host, o ScopeOptions) (*controlGroup, error) {
	ours, err := h.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, err
	}
	if theirs, err := h.Readlink("/proc/1/ns/pid"); err != nil || ours != theirs {
		return nil, errors.New("cannot name processes to systemd: this process is in a process namespace of its own")
	}
	conn, err := dialSystemd(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("cannot reach systemd: %w", err)
	}
	s := &systemdScope{conn: conn, name: o.Name + ".scope"}
	if err := s.open(ctx, h, o); err != nil {
		_ = s.end() // the earlier error is the one that matters
		return nil, fmt.Errorf("cannot make the scope %q: %w", s.name, err)
	}
	return &controlGroup{s.path, s.add, s.end}, nil
}

// dialSystemd connects to systemd directly, which works even without a D-Bus daemon.
func dialSystemd(ctx context.Context, h *Host) (*dbus.Conn, error) {
	socket, err := h.Path("/run/systemd/private")
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // a cancelled scope still needs the connection to end
	return dbus.NewConnection(func() (*bus.Conn, error) {
		conn, err := bus.Dial("unix:path="+bus.EscapeBusAddressValue(socket), bus.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		if err := conn.Auth([]bus.Auth{bus.AuthExternal("0")}); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	})
}

// jobDone waits for the end of a job; see JobRemoved in org.freedesktop.systemd1(5).
func jobDone(ctx context.Context, done <-chan string) error {
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("the job ended as %q", result)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// property is a property of a transient unit, with the type that org.freedesktop.systemd1(5) gives it.
func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: bus.MakeVariant(value)}
}

// open starts the waiting process and the scope around it.
func (s *systemdScope) open(ctx context.Context, h *Host, o ScopeOptions) error {
	shell, err := h.Programs().LookPath("sh")
	if err != nil {
		return err
	}
	keep := h.Programs().Command(context.WithoutCancel(ctx), shell, "-c", "read -r end")
	leave, err := keep.StdinPipe()
	if err != nil {
		return err
	}
	kept, err := Start(keep)
	if err != nil {
		return err
	}
	s.kept, s.leave = kept, leave
	ctx, cancel := context.WithTimeout(ctx, busTime)
	defer cancel()
	done := make(chan string, 1)
	if _, err := s.conn.StartTransientUnitContext(ctx, s.name, "fail", scopeProperties(o, keep.Process.Pid),
		done); err != nil {
		return err
	}
	if err := jobDone(ctx, done); err != nil {
		return err
	}
	group, err := s.conn.GetUnitTypePropertyContext(ctx, s.name, "Scope", "ControlGroup")
	if err != nil {
		return err
	}
	text, ok := group.Value.Value().(string)
	if !ok || text == "" {
		return errors.New("it has no control group")
	}
	s.path = path.Join("/sys/fs/cgroup", text)
	return nil
}

// scopeProperties returns properties of systemd.resource-control(5) and systemd.unit(5), with the types of
// org.freedesktop.systemd1(5).
func scopeProperties(o ScopeOptions, pid int) []dbus.Property {
	out := []dbus.Property{
		dbus.PropDescription(o.Description), dbus.PropPids(uint32(pid)), property("CollectMode", "inactive-or-failed"),
		property("Delegate", true), // a unit that is not delegated accepts no processes after its start
	}
	if o.CPUWeight > 0 {
		out = append(out, property("CPUWeight", uint64(o.CPUWeight)))
	}
	if o.MemoryBytes > 0 {
		out = append(out, property("MemoryMax", uint64(o.MemoryBytes)), property("MemorySwapMax", uint64(0)))
	}
	return out
}

func (s *systemdScope) add(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, busTime)
	defer cancel()
	return s.conn.AttachProcessesToUnit(ctx, s.name, "", []uint32{uint32(pid)})
}

func (s *systemdScope) end() error {
	defer s.conn.Close()
	if s.kept == nil {
		return nil
	}
	var err error
	if s.path != "" {
		ctx, cancel := context.WithTimeout(context.Background(), busTime)
		defer cancel()
		err = s.conn.KillUnitWithTarget(ctx, s.name, dbus.All, int32(unix.SIGKILL))
	}
	_ = s.leave.Close()
	<-s.kept //nolint:errcheck // it was killed
	return err
}

// openControlGroup creates a control group below the root of the version 2 tree, for a machine without systemd.
func openControlGroup(h *Host, o ScopeOptions) (*controlGroup, error) {
	root := "/sys/fs/cgroup"
	if !h.Exists(path.Join(root, "cgroup.procs")) {
		root = "/sys/fs/cgroup/unified" // mounted next to version 1, without its controllers
	}
	if !h.Exists(path.Join(root, "cgroup.procs")) {
		return nil, errors.New("no control groups of version 2 are mounted")
	}
	for _, controller := range []string{"+cpu", "+memory"} {
		_ = h.WriteAttribute(path.Join(root, "cgroup.subtree_control"), controller) // on failure: limits per process
	}
	for _, old := range h.Glob(root, "acceld-*") {
		_ = h.Remove(old) // left by a killed agent; one in use stays
	}
	dir := path.Join(root, o.Name)
	if err := h.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	set := func(file, text string) error { return h.WriteAttribute(path.Join(dir, file), text) }
	if o.CPUWeight > 0 {
		_ = set("cpu.weight", strconv.Itoa(o.CPUWeight))
	}
	if o.MemoryBytes > 0 {
		_ = set("memory.max", strconv.FormatInt(o.MemoryBytes, 10))
		_ = set("memory.swap.max", "0")
	}
	add := func(_ context.Context, pid int) error { return set("cgroup.procs", strconv.Itoa(pid)) }
	end := func() error {
		_ = set("cgroup.kill", "1") // Linux 5.14; the PID namespace killed them already
		return h.Remove(dir)
	}
	return &controlGroup{dir, add, end}, nil
}
