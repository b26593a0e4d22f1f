package detect

import (
	"cmp"
	"context"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/host"
)

// processDir returns the directory of a process in /proc.
func processDir(pid int) string { return path.Join(procDir, strconv.Itoa(pid)) }

// exe returns the link to the program that a process runs, which works even if its path is gone.
func exe(pid int) string { return processDir(pid) + "/exe" }

// arguments returns the command line of a process.
func arguments(h *host.Host, pid int) ([]string, error) {
	b, err := h.ReadBinary(processDir(pid) + "/cmdline")
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), nil
}

// lowestPID returns the lowest PID of a process with one of the names, or 0 if there is none. A process in another PID
// namespace than PID 1 does not count: it runs in a container, where any program can have any name.
func lowestPID(h *host.Host, comms ...string) (int, error) {
	names, err := h.Names(procDir)
	if err != nil {
		return 0, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.ParseUint(name, 10, 31); err == nil {
			pids = append(pids, int(pid))
		}
	}
	slices.Sort(pids)
	own, unknown := h.Readlink(processDir(1) + "/ns/pid")
	for _, pid := range pids {
		if comm, err := h.ReadAttribute(processDir(pid) + "/comm"); err != nil || !slices.Contains(comms, comm) {
			continue
		}
		if space, err := h.Readlink(processDir(pid) + "/ns/pid"); err == nil && unknown == nil && space != own {
			continue
		}
		return pid, nil
	}
	return 0, nil
}

// daemon returns the PID of the process that serves the endpoint, or 0 if there is none. Normally that is the listener
// of its socket. It is looked up by name if the service manager opened the socket, if the listener is in another PID
// namespace, or if connecting to the socket would start a service.
func daemon(h *host.Host, endpoint, comm string) int {
	if comm == "" {
		return 0
	}
	socket, ok := strings.CutPrefix(endpoint, "unix://")
	if ok && h.Live() && comm != "dockerd" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if pid, err := h.Processes().Peer(ctx, socket); err == nil && pid > 1 {
			return pid
		}
	}
	pid, _ := lowestPID(h, comm) // none if unknown
	return pid
}

// started returns when a process started, or the zero time if unknown.
func started(h *host.Host, pid int) time.Time {
	after, err := h.Processes().StartedAfterBoot(strconv.Itoa(pid))
	if err != nil {
		return time.Time{}
	}
	stat, _ := h.ReadFile(procDir + "/stat") // exceeds the attribute limit on a machine with many processors
	boot, _ := host.Line(string(stat), "btime")
	seconds, err := strconv.ParseInt(boot, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0).Add(after).UTC()
}

// unit returns the systemd service of a process, by its control group; empty if it has none.
func unit(h *host.Host, pid int) string {
	text, _ := h.ReadAttribute(processDir(pid) + "/cgroup") // proc_pid_cgroup(5): hierarchy, controllers, path
	for line := range strings.Lines(text) {
		for _, e := range slices.Backward(strings.Split(strings.TrimSpace(line), "/")) {
			if strings.HasSuffix(e, ".service") {
				return e
			}
		}
	}
	return ""
}

// programVersion returns the version that the Go toolchain recorded in a program: that of a linker flag, of the main
// module, or of the containerd inside it. If only the import path shows containerd, the major version is all that is
// known. It is empty if nothing tells the version.
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
	if containerd { // also in a program that embeds it along with others, which have their own versions
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
