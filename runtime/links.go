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

// The directories with a link "<major>:<minor>" for each device. systemd uses them to find the device of a device rule.
const (
	linkDir      = "/dev/char"
	linkDirBlock = "/dev/block"
)

// links are the links in these directories.
type links struct{ *files }

// create creates the links /dev/char/<major>:<minor> (or /dev/block) for those of a spec's nodes whose link is
// missing or points elsewhere. Usually udev has created them, but not for drivers whose nodes it does not know. Then
// runc with systemd cgroups loses the device at the next `systemctl daemon-reload`.
func (l *links) create(nodes []accel.DeviceNode) *accel.Problem {
	for _, dir := range []string{linkDir, linkDirBlock} {
		if p := l.removeStale(dir, nodes); p != nil {
			return p
		}
	}
	for _, n := range nodes {
		name := l.name(n)
		if name == "" || l.linked(name, n.Path) {
			continue
		}
		// Both are below /dev, so the link text goes up two directories and down again.
		if err := l.ledger.Symlink("../"+strings.TrimPrefix(n.Path, "/dev/"), name); err != nil {
			return l.problem("make the link", name, err)
		}
		l.log.Info("made link for the container runtime", "path", name, "node", n.Path)
	}
	return nil
}

// removeStale removes our own links in dir that lead to one of the nodes under its previous numbers: a driver that is
// loaded again may get another major number. The device that has the old number by then would be taken for ours.
func (l *links) removeStale(dir string, nodes []accel.DeviceNode) *accel.Problem {
	entries, err := l.host.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no links yet
	}
	if err != nil {
		return l.problem("read the links", dir, err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		stale := slices.ContainsFunc(nodes, func(n accel.DeviceNode) bool {
			right := l.name(n)
			return right != "" && right != name && l.linked(name, n.Path)
		})
		if !stale {
			continue
		}
		if ours, err := l.ledger.Recorded(name); err != nil || !ours {
			continue // udev maintains its own
		}
		if err := l.ledger.Remove(name); err != nil {
			return l.problem("remove the link", name, err)
		}
		l.log.Info("removed link to a node that has other numbers now", "path", name)
	}
	return nil
}

func (l *links) right(nodes []accel.DeviceNode) bool {
	for _, n := range nodes {
		if name := l.name(n); name != "" && !l.linked(name, n.Path) {
			return false
		}
	}
	return true
}

// name returns the path of a node's link; empty if the numbers are not known or the node is not below /dev.
func (l *links) name(n accel.DeviceNode) string {
	class, major, minor := "char", n.Major, n.Minor
	if st, err := l.host.Stat(n.Path); err == nil && st.Mode()&fs.ModeDevice != 0 {
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

// linked reports whether the link points to the node, by a relative or an absolute text.
func (l *links) linked(link, node string) bool {
	text, err := l.host.Readlink(link)
	if err != nil {
		return false
	}
	if !path.IsAbs(text) {
		text = path.Join(path.Dir(link), text)
	}
	return path.Clean(text) == path.Clean(node)
}
