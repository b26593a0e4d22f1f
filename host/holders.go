package host

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"syscall"

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
// number, whatever their name inside a container, and by path. Processes that exit during the search, or that may not
// be inspected, are left out.
func (h *Host) Holders(nodes []accel.DeviceNode) []Holder {
	entries, err := h.ReadDir("/proc")
	if err != nil || len(nodes) == 0 {
		return nil
	}
	live := h.Live()
	var holders []Holder
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		node := h.opened(pid, nodes, live)
		if node == "" {
			node = h.mapped(pid, nodes)
		}
		if node == "" {
			continue
		}
		comm, _ := h.ReadString(fmt.Sprintf("/proc/%d/comm", pid)) // a process may end at any moment
		cgroup, _ := h.ReadString(fmt.Sprintf("/proc/%d/cgroup", pid))
		pod, container := podOf(cgroup)
		holders = append(holders, Holder{PID: pid, Comm: comm, Node: node, Pod: pod, Container: container})
	}
	sort.Slice(holders, func(i, j int) bool { return holders[i].PID < holders[j].PID })
	return holders
}

// opened returns the first of nodes that the process has open, or "".
func (h *Host) opened(pid int, nodes []accel.DeviceNode, live bool) string {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := h.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, fd := range fds {
		text, err := h.Readlink(path.Join(dir, fd.Name()))
		if err != nil || !strings.HasPrefix(text, "/") {
			continue
		}
		for _, n := range nodes {
			if text == n.Path {
				return n.Path
			}
		}
		// The text is a path in the process's own mount namespace, so only the kernel's resolution of the link is
		// reliable.
		if !live || !strings.HasPrefix(text, "/dev/") {
			continue
		}
		var st syscall.Stat_t
		if syscall.Stat(filepath.Join(h.root, dir, fd.Name()), &st) != nil ||
			st.Mode&syscall.S_IFMT != syscall.S_IFCHR && st.Mode&syscall.S_IFMT != syscall.S_IFBLK {
			continue
		}
		for _, n := range nodes {
			if unix.Major(st.Rdev) == n.Major && unix.Minor(st.Rdev) == n.Minor {
				return n.Path
			}
		}
	}
	return ""
}

// mapped returns the first of nodes that the process has mapped, or "". A mapping outlives its descriptor.
func (h *Host) mapped(pid int, nodes []accel.DeviceNode) string {
	f, err := h.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return ""
	}
	defer closeQuietly(f)
	for sc := bufio.NewScanner(f); sc.Scan(); {
		for _, n := range nodes {
			if n.Path != "" && strings.HasSuffix(sc.Text(), " "+n.Path) {
				return n.Path
			}
		}
	}
	return ""
}

func closeQuietly(f *os.File) { _ = f.Close() } // only for files that were read

// podOf finds the pod's UID and the container's id in the text of /proc/<pid>/cgroup. The kubelet's two cgroup
// drivers write "/kubepods/burstable/pod<uid>/<id>" and "…-pod<uid with _>.slice/crio-<id>.scope".
func podOf(cgroup string) (pod, container string) {
	// The UID of a static pod, which the kubelet reads from a file, is 32 digits without dashes.
	m := regexp.MustCompile(
		`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`).FindStringSubmatch(cgroup)
	if m != nil {
		pod = strings.ReplaceAll(m[1], "_", "-")
	}
	if m := regexp.MustCompile(`\b([0-9a-f]{64})\b`).FindString(cgroup); m != "" {
		container = m
	}
	return pod, container
}
