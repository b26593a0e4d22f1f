package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

// mountTable is the table of mounts of process 1 (proc_pid_mountinfo(5)), and mountTableLimit how much of it is read,
// in bytes: a node with a thousand pods has ten thousand mounts of a few hundred bytes each.
const (
	mountTable      = "/proc/1/mountinfo"
	mountTableLimit = 16 << 20
)

// Mount is a mounted file system.
type Mount struct {
	// Major and Minor are the numbers of the file system's device. A file system on several devices has others.
	Major, Minor uint32
	// Source is what was mounted, such as "/dev/sda1", and Target is where.
	Source, Target string
}

// Mounts returns what is mounted in the mount namespace of process 1.
func (p Processes) Mounts() ([]Mount, error) {
	f, err := p.h.Open(mountTable)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(f)
	return parseMounts(f, mountTableLimit)
}

// parseMounts reads a table of mounts of at most limit bytes.
func parseMounts(in io.Reader, limit int64) ([]Mount, error) {
	bounded := &io.LimitedReader{R: in, N: limit + 1}
	var all []Mount
	lines := bufio.NewScanner(bounded)
	for lines.Scan() {
		m, err := parseMount(lines.Text())
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", mountTable, err)
	}
	if bounded.N <= 0 {
		return nil, fmt.Errorf("%q has more than %d bytes", mountTable, limit)
	}
	return all, nil
}

// parseMount reads a line such as "36 35 98:0 /root /target rw,noatime master:1 - ext3 /dev/root rw".
func parseMount(line string) (m Mount, err error) {
	first, second, found := strings.Cut(line, " - ")
	mount, device := strings.Fields(first), strings.Fields(second)
	if !found || len(mount) < 6 || len(device) < 2 {
		return Mount{}, fmt.Errorf("%q is no line of %q", line, mountTable)
	}
	if m.Major, m.Minor, err = numbers(mount[2]); err != nil {
		return Mount{}, fmt.Errorf("%q is no line of %q: %w", line, mountTable, err)
	}
	m.Target, m.Source = Unescape(mount[4]), Unescape(device[1])
	return m, nil
}

// numbers parses "major:minor".
func numbers(text string) (major, minor uint32, err error) {
	first, second, _ := strings.Cut(text, ":")
	a, err1 := strconv.ParseUint(first, 10, 32)
	b, err2 := strconv.ParseUint(second, 10, 32)
	return uint32(a), uint32(b), errors.Join(err1, err2)
}

// Unescape returns a path as tables of procfs have it, where blanks and backslashes are octal numbers, such as "\040"
// (mangle_path, fs/seq_file.c).
func Unescape(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, `\`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		code, err := strconv.ParseUint(after[:min(3, len(after))], 8, 8)
		if err != nil || len(after) < 3 {
			b.WriteByte('\\')
			text = after
			continue
		}
		b.WriteByte(byte(code))
		text = after[3:]
	}
}

// Disk returns the node of a block device by its name in /sys/class/block.
func (d Devices) Disk(name string) (accel.DeviceNode, error) {
	n, err := d.sysfsNode("/sys/class/block/" + name)
	return n.DeviceNode, err
}

// Claimed reports whether somebody has a block device for himself, in whatever mount namespace: a file system, swap, a
// RAID, a program that opened it exclusively. The kernel refuses to open such a device exclusively again (open(2),
// O_EXCL). A copy of a machine has no devices to open, and there nothing is claimed.
func (d Devices) Claimed(n accel.DeviceNode) (bool, error) {
	if !d.h.Live() {
		return false, nil
	}
	f, err := d.h.openFile(n.Path, unix.O_RDONLY|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer closeQuietly(f)
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFBLK || unix.Major(st.Rdev) != n.Major || unix.Minor(st.Rdev) != n.Minor {
		return false, fmt.Errorf("%q is another device than sysfs says", n.Path)
	}
	return false, nil
}
