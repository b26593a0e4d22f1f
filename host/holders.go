package host

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
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
// so there, and for mappings that may not be looked at, nodes are matched by path. Processes that only name a node
// (O_PATH) do not have it open. Processes that exit during the search, or that may not be inspected, are left out.
func (p Processes) Holders(nodes []accel.DeviceNode) []Holder {
	var holders []Holder
	// Without /proc there are no processes.
	_ = p.each(context.Background(), newSearch(p.h, nodes, 1), func(pid int, found []string) {
		comm, _ := p.h.ReadAttribute(fmt.Sprintf("/proc/%d/comm", pid)) // a process may end at any moment
		cgroup, _ := p.h.ReadAttribute(fmt.Sprintf("/proc/%d/cgroup", pid))
		pod, container := PodOf(cgroup)
		holders = append(holders, Holder{PID: pid, Comm: comm, Node: found[0], Pod: pod, Container: container})
	})
	return holders
}

// each calls visit for each process that has some of the nodes open or mapped, ordered by PID, with those that the
// search found. It fails if the processes cannot be listed, or ctx ends.
func (p Processes) each(ctx context.Context, s *search, visit func(pid int, found []string)) error {
	if len(s.nodes) == 0 {
		return nil
	}
	names, err := p.h.Names("/proc")
	if err != nil {
		return err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	for _, pid := range pids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if found := s.of(pid); len(found) > 0 {
			visit(pid, found)
		}
	}
	return nil
}

// search looks for nodes that processes have open or mapped.
type search struct {
	h     *Host
	nodes []accel.DeviceNode
	types []uint32 // of the nodes, S_IFCHR or S_IFBLK; 0 if not known
	live  bool
	most  int
	found []string
	// read reads what the kernel says of an open file; nil if nobody asks. files is what it said of the process's.
	read  func(node, file string) (string, error)
	files []OpenFile
	flags func(node, file string) (string, error) // reads the flags of an open file; nil until first needed
	buf   []byte                                  // for a link
	lines []byte                                  // for lines of maps
}

func newSearch(h *Host, nodes []accel.DeviceNode, most int) *search {
	s := &search{h: h, nodes: nodes, types: make([]uint32, len(nodes)), live: h.Live(), most: most}
	s.buf, s.lines = make([]byte, unix.PathMax+len(deleted)), make([]byte, 0, 64<<10)
	for i, n := range nodes {
		// Block and character devices have numbers of their own.
		if st, err := h.Stat(n.Path); s.live && err == nil && st.Mode()&fs.ModeDevice != 0 {
			s.types[i] = unix.S_IFBLK
			if st.Mode()&fs.ModeCharDevice != 0 {
				s.types[i] = unix.S_IFCHR
			}
		}
	}
	return s
}

// of returns which of the nodes a process has open or mapped.
func (s *search) of(pid int) []string {
	s.found, s.files = nil, nil
	for _, id := range s.threads(pid) {
		if s.opened(id); len(s.found) < s.most {
			s.mapped(id)
		}
	}
	return s.found
}

// threads returns the threads to look at: the first one, which has the process's number and shares its files and
// memory with the others. If it has ended it has neither, and no program, so the others are looked at. Kernel threads
// have no program either, and nothing open.
func (s *search) threads(pid int) (ids []int) {
	if !s.live || s.hasProgram(pid) {
		return []int{pid}
	}
	dir := fmt.Sprintf("/proc/%d/task", pid)
	var st unix.Stat_t
	if unix.Stat(filepath.Join(s.h.root, dir), &st) == nil && st.Nlink == 3 {
		return nil // ".", ".." and one thread (proc_task_getattr, fs/proc/base.c)
	}
	names, _ := s.h.Names(dir) // it may have ended
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil && id != pid {
			ids = append(ids, id)
		}
	}
	return ids
}

// hasProgram is false only if the kernel says that a thread has no program (proc_exe_link, fs/proc/base.c).
func (s *search) hasProgram(pid int) bool {
	_, err := unix.Readlink(filepath.Join(s.h.root, fmt.Sprintf("proc/%d/exe", pid)), s.buf)
	return err != unix.ENOENT
}

// add adds a node, and reports whether it is the last one that is looked for.
func (s *search) add(node string) (last bool) {
	if node != "" && !slices.Contains(s.found, node) {
		s.found = append(s.found, node)
	}
	return len(s.found) >= s.most
}

// opened finds the nodes that the process has open.
func (s *search) opened(pid int) {
	dir, err := s.h.OpenDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return // it has ended, or may not be inspected
	}
	defer dir.Close()
	_ = dir.each(func(fd string) bool { // as above
		n, err := unix.Readlinkat(dir.fd, fd, s.buf)
		if err != nil || n == 0 || s.buf[0] != '/' {
			return true
		}
		text := bytes.TrimSuffix(s.buf[:n], []byte(deleted))
		if !resembles(text, s.nodes) {
			return true
		}
		node, err := s.behind(path.Join(dir.name, fd), string(text), s.live)
		if err != nil || node == "" || s.live && s.onlyNamed(dir.fd, node, pid, fd) {
			return true
		}
		s.ask(node, pid, fd)
		return !s.add(node) || s.read != nil
	})
}

// deleted is what the kernel appends to a path that was removed (d_path, fs/d_path.c).
const deleted = " (deleted)"

// resembles reports whether a path may be that of one of nodes in another mount namespace or root directory. Only then
// is its file worth a look. It is called for each file that any process has open or mapped.
func resembles(text []byte, nodes []accel.DeviceNode) bool {
	if bytes.Contains(text, []byte("/dev/")) {
		return true
	}
	base := text[bytes.LastIndexByte(text, '/'):]
	for i := range nodes {
		if strings.HasSuffix(nodes[i].Path, string(base)) {
			return true
		}
	}
	return false
}

// behind returns the first of the nodes that is the file behind a link of the kernel with this text, or "". The text is
// a path in the process's own mount namespace, where a plain file may have a node's name, so only the numbers decide. A
// copy of a machine has only the text.
func (s *search) behind(link, text string, live bool) (string, error) {
	if !live {
		return s.pathOf(func(i int) bool { return s.nodes[i].Path == text }), nil
	}
	var st unix.Statx_t
	// Without a sync, the server of a network file system or of FUSE is not asked, and cannot block this.
	if err := unix.Statx(unix.AT_FDCWD, filepath.Join(s.h.root, link), unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE,
		&st); err != nil {
		return "", err
	}
	kind := uint32(st.Mode & unix.S_IFMT)
	if kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return "", nil
	}
	return s.pathOf(func(i int) bool {
		n := s.nodes[i]
		return st.Rdev_major == n.Major && st.Rdev_minor == n.Minor && (s.types[i] == 0 || s.types[i] == kind)
	}), nil
}

// pathOf returns the path of the first node that is meant, or "".
func (s *search) pathOf(meant func(i int) bool) string {
	for i, n := range s.nodes {
		if meant(i) {
			return n.Path
		}
	}
	return ""
}

// mapped finds the nodes that the process has mapped. A mapping outlives its descriptor.
func (s *search) mapped(pid int) {
	f, err := s.h.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return
	}
	defer closeQuietly(f)
	sc := bufio.NewScanner(f)
	sc.Buffer(s.lines, cap(s.lines))
	for sc.Scan() {
		at := bytes.IndexByte(sc.Bytes(), '/')
		if at < 0 {
			continue
		}
		text := bytes.TrimSuffix(sc.Bytes()[at:], []byte(deleted))
		if !resembles(text, s.nodes) {
			continue
		}
		span, _, _ := strings.Cut(string(sc.Bytes()[:at]), " ")
		from, to, _ := strings.Cut(span, "-")
		// The link's name has no leading zeros (proc_pid_map_files(5)).
		link := fmt.Sprintf("/proc/%d/map_files/%s-%s", pid, strings.TrimLeft(from, "0"), strings.TrimLeft(to, "0"))
		node, err := s.behind(link, string(text), s.live)
		if err != nil { // following it needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
			node, _ = s.behind(link, string(text), false)
		}
		if s.add(node) {
			return
		}
	}
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
