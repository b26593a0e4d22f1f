package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/progress"
	"github.com/acceld/acceld/host"
)

// Dir holds the locks of the host. It is empty after a boot, so no lock survives a reboot.
const Dir = "/run/acceld"

// DriverFile returns the file that is locked while drivers change or devices are reset.
func DriverFile() string { return path.Join(Dir, "driver.lock") }

// Locks takes the locks of one host.
type Locks struct {
	Host *host.Host
	Tell progress.Teller
	// Timeout is how long to wait for the driver lock.
	Timeout time.Duration
}

// Driver keeps every other acceld on the host (a DaemonSet and a unit) from loading and unloading drivers. Kind is
// the kind whose driver changes; empty for all kinds.
func (l Locks) Driver(ctx context.Context, kind string) (release func(), problem *accel.Problem) {
	name := DriverFile()
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	err := l.Host.MkdirAll(Dir, 0o755)
	if err == nil {
		release, err = l.File(ctx, kind, name)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil, accel.Problemf(accel.AlreadyRunning, "another acceld is changing drivers and holds %q: %s", name,
			holderOf(l.Host, name))
	}
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot take the driver lock")
	}
	return release, nil
}

// File takes a lock for the work on a kind, and reports progress if it has to wait.
func (l Locks) File(ctx context.Context, kind, name string) (release func(), err error) {
	release, err = l.Host.Locks().Try(name, Text(l.Host))
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return release, err
	}
	s := l.Tell.Begin(accel.Progress{Kind: kind, Stage: accel.StageWait, What: holderOf(l.Host, name)})
	release, err = l.Host.Locks().Take(ctx, name, Text(l.Host))
	if err != nil {
		s.Problem = err.Error()
	}
	s.End(nil)
	return release, err
}

// owner is the content of a lock file.
type owner struct {
	PID    int    `json:"pid"`
	BootID string `json:"bootID"`
	// Group names the agents that may follow this one; see [Follow].
	Group string `json:"group,omitempty"`
	// Resets are the devices that the owner is resetting.
	Resets []string `json:"resets,omitempty"`
}

// Text returns what this process writes into a lock file, with the devices that it is resetting.
func Text(h *host.Host, resets ...string) string { return text(h, owner{Resets: resets}) }

func text(h *host.Host, o owner) string {
	o.PID, o.BootID = os.Getpid(), BootID(h)
	b, err := json.Marshal(o)
	if err != nil {
		return ""
	}
	return string(b)
}

// Resetting returns the devices that the holder of the driver lock is resetting now; none if nobody holds it.
func Resetting(h *host.Host) []string {
	o := ownerOf(h, DriverFile())
	if len(o.Resets) == 0 || !h.Locks().Held(DriverFile()) {
		return nil
	}
	return o.Resets
}

// ownerOf reads a lock file; the zero value if it cannot be read.
func ownerOf(h *host.Host, name string) owner {
	var o owner
	text, err := h.ReadAttribute(name)
	if err != nil || json.Unmarshal([]byte(text), &o) != nil {
		return owner{}
	}
	return o
}

func holderOf(h *host.Host, name string) string {
	o := ownerOf(h, name)
	if o.PID == 0 {
		return "holder unknown"
	}
	comm, err := h.ReadAttribute(fmt.Sprintf("/proc/%d/comm", o.PID))
	if err != nil {
		return fmt.Sprintf("process %d", o.PID)
	}
	return fmt.Sprintf("process %d (%s)", o.PID, comm)
}

// BootID returns the ID of the current boot; empty if the kernel does not report it.
func BootID(h *host.Host) string {
	id, err := h.ReadAttribute("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return id
}
