package detect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/host"
)

// processDir returns the directory of a process in /proc.
func processDir(pid int) string { return path.Join(procDir, strconv.Itoa(pid)) }

// exe returns the link to the program that a process runs, which works even if its path is gone.
func exe(pid int) string { return processDir(pid) + "/exe" }

// process is what the kernel says about a process. Any process can have any name, so only this tells whether it can
// be a daemon of the host.
type process struct {
	pid, parent int
	root        bool   // its real, effective, saved and file system user are root
	nested      bool   // it has a PID namespace below the machine's own
	pod         string // "pod <UID>", or "a pod" if the UID is not known; empty outside pods
	unit        string // its systemd service; empty if it has none
	hosts       bool   // systemd has started it as a service, or it sees the file system of process 1
}

// readProcess reads what the kernel says about a process.
func readProcess(h *host.Host, pid int) (process, error) {
	status, err := h.ReadAttribute(processDir(pid) + "/status")
	if err != nil {
		return process{}, err
	}
	p, err := parseStatus(status)
	if err != nil {
		return process{}, fmt.Errorf("%s/status: %w", processDir(pid), err)
	}
	groups, err := h.ReadAttribute(processDir(pid) + "/cgroup")
	if err != nil {
		return process{}, err
	}
	p.pid, p.pod, p.unit, p.hosts = pid, podIn(groups), unitIn(groups), isService(groups)
	if !p.hosts {
		p.hosts, err = h.Processes().SeesMachine(pid)
	}
	return p, err
}

// parseStatus parses /proc/<pid>/status (proc_pid_status(5)). The kernel escapes the line feeds of the name in it. Its
// list of PIDs has one for the namespace of this procfs, which is the machine's, and one for each namespace below.
func parseStatus(text string) (process, error) {
	var p process
	parent, _ := host.Line(text, "PPid")
	uids, _ := host.Line(text, "Uid")
	pids, _ := host.Line(text, "NSpid")
	users, spaces := strings.Fields(uids), strings.Fields(pids)
	if len(users) != 4 || len(spaces) == 0 {
		return p, fmt.Errorf("no user and namespaces in %q", clip(text))
	}
	p.root = !slices.ContainsFunc(users, func(u string) bool { return u != "0" })
	p.nested = len(spaces) > 1
	p.parent, _ = strconv.Atoi(parent) // 0 is no parent
	return p, nil
}

// podIn names the pod in the text of /proc/<pid>/cgroup; it is empty outside pods.
func podIn(groups string) string {
	pod, _ := host.PodOf(groups)
	switch {
	case pod != "":
		return "pod " + pod
	case strings.Contains(groups, "kubepods"): // the kubelet's control group of all pods, with both of its drivers
		return "a pod"
	}
	return ""
}

// serviceName is the form of a systemd service's name (systemd.unit(5)).
var serviceName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]{1,247}\.service$`)

// controlGroup returns the elements of the path in a line of /proc/<pid>/cgroup, which has one for each hierarchy:
// number, controllers, path (proc_pid_cgroup(5)). A path that does not begin with "/" is not the kernel's.
func controlGroup(line string) []string {
	_, rest, _ := strings.Cut(line, ":")
	_, name, _ := strings.Cut(strings.TrimSuffix(rest, "\n"), ":")
	if !strings.HasPrefix(name, "/") {
		return nil
	}
	return strings.Split(strings.Trim(name, "/"), "/")
}

// unitIn returns the systemd service in the text of /proc/<pid>/cgroup.
func unitIn(groups string) string {
	for line := range strings.Lines(groups) {
		for _, e := range slices.Backward(controlGroup(line)) {
			if serviceName.MatchString(e) {
				return e
			}
		}
	}
	return ""
}

// isService reports whether a process is in the control group of a systemd service itself, below nothing but slices.
// Only systemd gives such a name: the control group of a container may be below that of a service, with the kubelet's
// --cgroups-per-qos=false, but is not that one. If the reader is in a control group namespace, the path begins with a
// way up from there.
func isService(groups string) bool {
	for line := range strings.Lines(groups) {
		elements := controlGroup(line)
		last := len(elements) - 1
		between := func(e string) bool { return e != ".." && !strings.HasSuffix(e, ".slice") }
		if last >= 0 && serviceName.MatchString(elements[last]) && !slices.ContainsFunc(elements[:last], between) {
			return true
		}
	}
	return false
}

// foreign says why a process is not a daemon of the host; empty if it can be one.
func (p process) foreign() string {
	switch {
	case p.pod != "":
		return "it runs in " + p.pod
	case p.nested:
		return "it runs in a container"
	case !p.root:
		return "it does not run as root"
	case !p.hosts:
		return "it sees another file system"
	}
	return ""
}

// rank orders the host's processes of one name: the main process of a service first, which systemd has started, then
// the other processes of services.
func (p process) rank() int {
	switch {
	case p.unit == "":
		return 2
	case p.parent != 1:
		return 1
	}
	return 0
}

// look is one look at the daemons of a host. What it finds on the way is added to problems (what could not be read)
// and notes (what was seen and is ignored, because it is not the host's).
type look struct {
	*host.Host
	problems, notes []string
}

// maxNotes is how many notes a look keeps: a tenant can start any number of processes.
const maxNotes = 8

// note adds a note. The texts have no PIDs, so that the notes of two looks are the same.
func (l *look) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(l.notes) < maxNotes && !slices.Contains(l.notes, text) {
		l.notes = append(l.notes, text)
	}
}

func (l *look) problem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// own returns what the kernel says about a process, if it is one of the host's own. What names it for people.
func (l *look) own(pid int, what string) (process, bool) {
	p, err := readProcess(l.Host, pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) { // it has ended
		return p, false
	}
	if err != nil {
		l.note("%s is ignored: it is not known whose it is", what)
		return p, false
	}
	if why := p.foreign(); why != "" {
		l.note("%s is ignored: %s", what, why)
		return p, false
	}
	return p, true
}

// named returns the host's own process with one of the names; a zero one if there is none. With several it is the main
// process of a service, then the one with the lowest PID.
func (l *look) named(comms ...string) (process, error) {
	names, err := l.Names(procDir)
	if err != nil {
		return process{}, err
	}
	var found []process
	for _, name := range names {
		pid, err := strconv.ParseUint(name, 10, 31)
		if err != nil {
			continue
		}
		comm, err := l.ReadAttribute(processDir(int(pid)) + "/comm")
		if err != nil || !slices.Contains(comms, comm) {
			continue
		}
		if p, ok := l.own(int(pid), fmt.Sprintf("a process named %q", comm)); ok {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return process{}, nil
	}
	return slices.MinFunc(found, func(a, b process) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.pid, b.pid))
	}), nil
}

// trusted reports whether nobody but root can have put the socket or directory there. A copy of a machine has the
// owners that whoever copied it gave it.
func (l *look) trusted(name string) bool {
	if !l.Live() {
		return true
	}
	err := host.RootOwned(l.Host, name)
	if err != nil {
		l.note("%q is ignored, because it is not root's alone: %v", name, err)
	}
	return err == nil
}
