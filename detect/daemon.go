package detect

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/host"
)

// daemon returns the process that serves the endpoint; a zero one if there is none. Normally that is the listener of
// its socket. It is looked up by name if the service manager opened the socket, if the listener is in another PID
// namespace, or if connecting to the socket would start a service. Either way it must be one of the host's own.
func (l *look) daemon(endpoint, comm string) process {
	if comm == "" {
		return process{}
	}
	if comm != "dockerd" {
		if p := l.listener(endpoint); p.pid > 0 {
			return p
		}
	}
	p, _ := l.named(comm) // none if unknown
	return p
}

// listener returns the host's own process that listens at an endpoint; a zero one if that is not known.
func (l *look) listener(endpoint string) process {
	socket, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || !l.Live() || !l.trusted(socket) {
		return process{}
	}
	pid := peer(l.Host, socket)
	if pid <= 1 {
		return process{}
	}
	if p, ok := l.own(pid, fmt.Sprintf("the listener of %q", socket)); ok {
		return p
	}
	return process{}
}

// peer returns the PID of the process that listens at a socket; 0 if that is not known.
func peer(h *host.Host, socket string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pid, err := h.Processes().Peer(ctx, socket)
	if err != nil {
		return 0
	}
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
