package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

// linkDir has a link "<major>:<minor>" to each character device, by which systemd finds what a device rule is about.
const linkDir = "/dev/char"

// link makes the links /dev/char/<major>:<minor> (or /dev/block) of the spec's nodes that are missing or point to
// another node. udev usually has made them; drivers whose nodes it does not know leave them out, and then runc with
// systemd cgroups loses the device at the next `systemctl daemon-reload`.
func (r *Runtime) link(s *spec) *accel.Problem {
	if p := r.unlinkStale(s); p != nil {
		return p
	}
	for _, n := range s.nodes {
		name := r.linkName(n)
		if name == "" || r.linked(name, n.Path) {
			continue
		}
		// Both are below /dev, so the text climbs two directories and goes down again.
		if err := r.ledger.Symlink("../"+strings.TrimPrefix(n.Path, "/dev/"), name); err != nil {
			return r.problem("make the link", name, err)
		}
		r.log.Info("made link for the container runtime", "path", name, "node", n.Path)
	}
	return nil
}

// unlinkStale takes away the links of our own that lead to one of the spec's nodes under numbers which it had before: a
// driver that is loaded again may get another major number. Whoever has the old one by then would be taken for our
// device.
func (r *Runtime) unlinkStale(s *spec) *accel.Problem {
	entries, err := r.host.ReadDir(linkDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is none yet
	}
	if err != nil {
		return r.problem("read the links", linkDir, err)
	}
	for _, e := range entries {
		name := path.Join(linkDir, e.Name())
		stale := slices.ContainsFunc(s.nodes, func(n accel.DeviceNode) bool {
			right := r.linkName(n)
			return right != "" && right != name && r.linked(name, n.Path)
		})
		if !stale {
			continue
		}
		if ours, err := r.ledger.Recorded(name); err != nil || !ours {
			continue // udev keeps its own
		}
		if err := r.ledger.Remove(name); err != nil {
			return r.problem("remove the link", name, err)
		}
		r.log.Info("removed link to a node that has other numbers now", "path", name)
	}
	return nil
}

func (r *Runtime) linksRight(s *spec) bool {
	for _, n := range s.nodes {
		if name := r.linkName(n); name != "" && !r.linked(name, n.Path) {
			return false
		}
	}
	return true
}

// linkName returns the link of a node; empty when its numbers are not known, or it is not below /dev.
func (r *Runtime) linkName(n accel.DeviceNode) string {
	class, major, minor := "char", n.Major, n.Minor
	if st, err := r.host.Stat(n.Path); err == nil && st.Mode()&fs.ModeDevice != 0 {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			major, minor = unix.Major(sys.Rdev), unix.Minor(sys.Rdev)
		}
		if st.Mode()&fs.ModeCharDevice == 0 {
			class = "block"
		}
	}
	if major == 0 || !strings.HasPrefix(n.Path, "/dev/") {
		return ""
	}
	return fmt.Sprintf("/dev/%s/%d:%d", class, major, minor)
}

// linked reports whether the link's text, relative or absolute, means the node.
func (r *Runtime) linked(link, node string) bool {
	text, err := r.host.Readlink(link)
	if err != nil {
		return false
	}
	if !path.IsAbs(text) {
		text = path.Join(path.Dir(link), text)
	}
	return path.Clean(text) == path.Clean(node)
}
