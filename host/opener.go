package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/acceld/acceld/accel"
)

// Opener is a process that has device nodes open or mapped. Others choose its name and the names of its control groups:
// the texts are short and printable.
type Opener struct {
	PID int
	// Start is the time between the boot and its start. PID and Start together are those of one process.
	Start time.Duration
	Comm  string
	// Nodes are the device nodes as the machine sees them, sorted.
	Nodes []string
	// Pod is the UID of its Kubernetes pod, and Container the id of its container; empty outside them.
	Pod, Container string
	// Files are the open files of which the kernel says something, by /proc/<pid>/fdinfo.
	Files []OpenFile
	// Unit is the service or the scope of systemd that it belongs to, or the last part of its control group's path.
	Unit string
}

// openerText is how many bytes a text of an [Opener] has at most. The kernel keeps 15 of a process's name.
const openerText = 64

// Openers returns the processes that have some of the nodes open or mapped, as [Processes.Holders] finds them, each
// with all of these nodes. Read is called for each open file of a node, with the path of its fdinfo, to fill in
// [Opener.Files]; nil reads none. Openers fails if the processes cannot be listed, or ctx ends.
func (p Processes) Openers(ctx context.Context, nodes []accel.DeviceNode, read func(node, file string) (string, error),
) ([]Opener, error) {
	var all []Opener
	s := newSearch(p.h, nodes, len(nodes))
	s.read = read
	err := p.each(ctx, s, func(pid int, found []string) {
		start, err := p.StartedAfterBoot(strconv.Itoa(pid))
		if err != nil {
			return // it has ended
		}
		comm, _ := p.h.ReadAttribute(fmt.Sprintf("/proc/%d/comm", pid)) // it may end at any moment
		cgroup, err := p.h.ReadAttribute(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			return
		}
		slices.Sort(found)
		o := Opener{PID: pid, Start: start, Comm: tidy(comm), Nodes: found, Files: s.files, Unit: unitOf(cgroup)}
		o.Pod, o.Container = PodOf(cgroup)
		// Users own what is in this slice, and give the groups there any name, that of a pod too.
		if strings.Contains(cgroup, "/user.slice/") {
			o.Pod = ""
		}
		all = append(all, o)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot look for processes that use devices: %w", err)
	}
	return all, nil
}

// unitOf finds the service or the scope in the text of /proc/<pid>/cgroup; without one, it is the name of the innermost
// control group. It is empty in the root of the tree.
func unitOf(cgroup string) string {
	var unit, innermost string
	for line := range strings.Lines(cgroup) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for part := range strings.SplitSeq(fields[2], "/") {
			switch {
			case part == "" || part == "..":
			case strings.HasSuffix(part, ".service"), strings.HasSuffix(part, ".scope"):
				unit = part
			default:
				innermost = part
			}
		}
		if unit != "" {
			return tidy(unit)
		}
	}
	return tidy(innermost)
}

// tidy returns at most openerText bytes of a text that somebody else has written, all printable.
func tidy(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text[:min(len(text), openerText)], "?"))
}

// DescendsFrom reports whether a process is another one, or was started by it, or by a process that was.
func (p Processes) DescendsFrom(pid, ancestor int) bool {
	const deepest = 64 // PIDs are reused: the walk must end
	for range deepest {
		if pid == ancestor {
			return true
		}
		if pid <= 1 {
			return false
		}
		fields, err := p.stat(strconv.Itoa(pid))
		if err != nil || len(fields) < 2 {
			return false
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return false
		}
	}
	return false
}

// Runs reports whether a process runs one of some programs, which are files of this process, whatever it calls itself.
func (p Processes) Runs(pid int, programs ...string) bool {
	its, err := p.at(pid, "exe")
	if err != nil {
		return false // it has ended, or is a thread of the kernel
	}
	return slices.ContainsFunc(programs, func(name string) bool {
		program, err := os.Stat(name)
		return err == nil && os.SameFile(its, program)
	})
}
