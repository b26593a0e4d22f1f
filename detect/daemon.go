package detect

import (
	"cmp"
	"context"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/host"
)

// processDir is the directory of a process in /proc.
func processDir(pid int) string { return path.Join(procDir, strconv.Itoa(pid)) }

// exe is the program that a process runs, whatever has become of its path.
func exe(pid int) string { return processDir(pid) + "/exe" }

// arguments returns the command line of a process.
func arguments(h *host.Host, pid int) ([]string, error) {
	b, err := h.ReadBinary(processDir(pid) + "/cmdline")
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), nil
}

// lowestPID returns the process with one of the names that has the lowest id; 0 when there is none.
func lowestPID(h *host.Host, comms ...string) (int, error) {
	all, err := h.OpenDir(procDir)
	if err != nil {
		return 0, err
	}
	defer all.Close()
	names, err := all.Names()
	if err != nil {
		return 0, err
	}
	var pids []int
	for _, name := range names {
		if isPID(name) {
			pid, _ := strconv.Atoi(name) // isPID has parsed it
			pids = append(pids, pid)
		}
	}
	sort.Ints(pids)
	for _, pid := range pids {
		if comm, err := h.ReadAttribute(processDir(pid) + "/comm"); err == nil && slices.Contains(comms, comm) {
			return pid, nil
		}
	}
	return 0, nil
}

// daemon returns the process that serves the endpoint: the listener of its socket, or the one of the name when the
// service manager opened the socket, when the listener is in another pid namespace or when the socket must not be
// touched because that would start a service. 0 when there is none.
func daemon(h *host.Host, endpoint string, comms []string) int {
	socket, ok := strings.CutPrefix(endpoint, "unix://")
	if ok && h.Live() && !slices.Contains(comms, "dockerd") && len(comms) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if pid, err := h.Peer(ctx, socket); err == nil && pid > 1 {
			return pid
		}
	}
	pid, err := lowestPID(h, comms...)
	if err != nil {
		return 0
	}
	return pid
}

// started returns when a process started. Zero when it cannot be known.
func started(h *host.Host, pid int) time.Time {
	after, err := h.StartedAfterBoot(strconv.Itoa(pid))
	if err != nil {
		return time.Time{}
	}
	boot, err := h.ReadFile(procDir + "/stat") // longer than an attribute on a machine with many processors
	if err != nil {
		return time.Time{}
	}
	for _, line := range strings.Split(string(boot), "\n") {
		if text, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return time.Time{}
			}
			return time.Unix(seconds, 0).Add(after).UTC()
		}
	}
	return time.Time{}
}

// unit returns the systemd unit that a process is in, by its control group; empty when it is in none.
func unit(h *host.Host, pid int) string {
	text, err := h.ReadAttribute(processDir(pid) + "/cgroup")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(text, "\n") {
		_, group, _ := strings.Cut(line, ":")
		_, group, _ = strings.Cut(group, ":")
		elements := strings.Split(group, "/")
		for _, e := range slices.Backward(elements) {
			if strings.HasSuffix(e, ".service") {
				return e
			}
		}
	}
	return ""
}

// programVersion reads what the Go toolchain wrote into a program about its version: of the module, of a linker flag,
// or of the containerd in it, of which the path alone tells the major one. Empty for what tells nothing.
func programVersion(h *host.Host, program string, containerd bool) string {
	f, err := h.Open(program)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // opened for reading
	info, err := goProgram(f)
	if err != nil {
		return ""
	}
	flag := `[./]version\.Version=v?([0-9][0-9A-Za-z.+~-]*)`
	if containerd { // also in a program that has it among others, with versions of their own
		flag = `containerd/containerd(?:/v2)?/` + strings.TrimPrefix(flag, `[./]`)
	}
	for _, s := range info.Settings {
		if m := regexp.MustCompile(flag).FindStringSubmatch(s.Value); s.Key == "-ldflags" && m != nil {
			return m[1]
		}
	}
	const module = "github.com/containerd/containerd"
	for _, m := range append(info.Deps, &info.Main) {
		if !containerd || m.Path != module && m.Path != module+"/v2" {
			continue
		}
		major := "1"
		if m.Path != module {
			major = "2"
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if v := strings.TrimPrefix(m.Version, "v"); strings.HasPrefix(v, major+".") {
			return v
		}
		return major
	}
	if m := regexp.MustCompile(`^github\.com/containerd/containerd(/v2)?/cmd/`).FindStringSubmatch(
		info.Path); containerd && m != nil {
		return cmp.Or(strings.TrimPrefix(m[1], "/v"), "1") // built without modules, as Debian does
	}
	return strings.TrimPrefix(strings.TrimPrefix(info.Main.Version, "(devel)"), "v")
}
