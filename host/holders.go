package host

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

// Holder is a process that has a device node open or mapped.
type Holder struct {
	PID  int
	Comm string // the process's name, from /proc/<pid>/comm
	Node string // the device node as the machine sees it
	// Pod is the UID of the Kubernetes pod that the process runs in; empty outside pods.
	Pod string
	// Container is the id of the process's container, 64 hexadecimal digits; empty outside containers.
	Container string
}

// String returns a text for people: `python3 (pid 4242, pod 0b8…)`.
func (o Holder) String() string {
	s := fmt.Sprintf("%s (pid %d", o.Comm, o.PID)
	switch {
	case o.Pod != "":
		s += ", pod " + o.Pod
	case o.Container != "":
		s += ", container " + o.Container[:12]
	}
	return s + ")"
}

// Holders returns the processes that have one of the nodes open or mapped, ordered by PID. Nodes are matched by device
// number, if the process's path of them has "/dev/" in it or the same last element. A copy of a machine has no numbers,
// so there, and for mappings that may not be looked at, nodes are matched by path. Processes that exit during the
// search, or that may not be inspected, are left out.
func (p Processes) Holders(nodes []accel.DeviceNode) []Holder {
	names, err := p.h.Names("/proc")
	if err != nil || len(nodes) == 0 {
		return nil
	}
	live := p.h.Live()
	var holders []Holder
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		node := p.opened(pid, nodes, live)
		if node == "" {
			node = p.mapped(pid, nodes, live)
		}
		if node == "" {
			continue
		}
		comm, _ := p.h.ReadAttribute(fmt.Sprintf("/proc/%d/comm", pid)) // a process may end at any moment
		cgroup, _ := p.h.ReadAttribute(fmt.Sprintf("/proc/%d/cgroup", pid))
		pod, container := PodOf(cgroup)
		holders = append(holders, Holder{PID: pid, Comm: comm, Node: node, Pod: pod, Container: container})
	}
	sort.Slice(holders, func(i, j int) bool { return holders[i].PID < holders[j].PID })
	return holders
}

// opened returns the first of nodes that the process has open, or "".
func (p Processes) opened(pid int, nodes []accel.DeviceNode, live bool) string {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, _ := p.h.Names(dir) // a process that may not be inspected has none
	for _, fd := range fds {
		link := path.Join(dir, fd)
		text, err := p.h.Readlink(link)
		text = strings.TrimSuffix(text, deleted)
		if err != nil || !strings.HasPrefix(text, "/") || !resembles(text, nodes) {
			continue
		}
		if node, err := p.behind(link, text, nodes, live); err == nil && node != "" {
			return node
		}
	}
	return ""
}

// deleted is what the kernel appends to a path that was removed (d_path, fs/d_path.c).
const deleted = " (deleted)"

// resembles reports whether a path may be that of one of nodes in another mount namespace or root directory. Only then
// is its file worth a look.
func resembles(text string, nodes []accel.DeviceNode) bool {
	base := "/" + path.Base(text)
	return strings.Contains(text, "/dev/") || slices.ContainsFunc(nodes, func(n accel.DeviceNode) bool {
		return strings.HasSuffix(n.Path, base)
	})
}

// behind returns the first of nodes that is the file behind a link of the kernel with this text, or "". The text is a
// path in the process's own mount namespace, where a plain file may have a node's name, so only the numbers decide. A
// copy of a machine has only the text.
func (p Processes) behind(link, text string, nodes []accel.DeviceNode, live bool) (string, error) {
	is := func(n accel.DeviceNode) bool { return n.Path == text }
	if live {
		var st unix.Statx_t
		// Without a sync, the server of a network file system or of FUSE is not asked, and cannot block this.
		if err := unix.Statx(unix.AT_FDCWD, filepath.Join(p.h.root, link), unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE,
			&st); err != nil {
			return "", err
		}
		if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFCHR && kind != unix.S_IFBLK {
			return "", nil
		}
		is = func(n accel.DeviceNode) bool { return st.Rdev_major == n.Major && st.Rdev_minor == n.Minor }
	}
	if i := slices.IndexFunc(nodes, is); i >= 0 {
		return nodes[i].Path, nil
	}
	return "", nil
}

// mapped returns the first of nodes that the process has mapped, or "". A mapping outlives its descriptor.
func (p Processes) mapped(pid int, nodes []accel.DeviceNode, live bool) string {
	f, err := p.h.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return ""
	}
	defer closeQuietly(f)
	for sc := bufio.NewScanner(f); sc.Scan(); {
		span, text, found := strings.Cut(sc.Text(), "/")
		text = strings.TrimSuffix("/"+text, deleted)
		if !found || !resembles(text, nodes) {
			continue
		}
		span, _, _ = strings.Cut(span, " ")
		from, to, _ := strings.Cut(span, "-")
		// The link's name has no leading zeros (proc_pid_map_files(5)).
		link := fmt.Sprintf("/proc/%d/map_files/%s-%s", pid, strings.TrimLeft(from, "0"), strings.TrimLeft(to, "0"))
		node, err := p.behind(link, text, nodes, live)
		if err != nil { // following it needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
			node, _ = p.behind(link, text, nodes, false)
		}
		if node != "" {
			return node
		}
	}
	return ""
}

func closeQuietly(f *os.File) { _ = f.Close() } // only for files that were read

// PodOf finds the pod's UID and the container's id in the text of /proc/<pid>/cgroup. The kubelet's two cgroup
// drivers write "/kubepods/burstable/pod<uid>/<id>" and "…-pod<uid with _>.slice/crio-<id>.scope".
func PodOf(cgroup string) (pod, container string) {
	// The UID of a static pod, which the kubelet reads from a file, is 32 digits without dashes.
	m := regexp.MustCompile(
		`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`).FindStringSubmatch(cgroup)
	if m != nil {
		pod = strings.ReplaceAll(m[1], "_", "-")
	}
	return pod, regexp.MustCompile(`\b[0-9a-f]{64}\b`).FindString(cgroup)
}
