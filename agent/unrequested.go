package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/usage"
)

// unrequested is what finds out, with the organs of an agent, who was given which device.
type unrequested struct{ *Agent }

// watcher returns what looks for processes that use devices which nobody gave to them.
func (a unrequested) watcher() *usage.Watcher { return usage.New(a.options()) }

func (a unrequested) options() usage.Options {
	cleaner := driver.NewCleaner(a.driver)
	return usage.Options{
		Log: a.Log, Host: a.Host, File: "/run/acceld/usage.json",
		Follow:  func() (accel.Machine, <-chan struct{}) { return a.loop.Follow() },
		Openers: a.openers(), Took: host.ProcessorTime, Shared: cleaner.SharedNodes,
		Processes: func(def *accel.Definition) map[string][]accel.ProbeProcess {
			return a.programs.Processes(def.Kind)
		},
		Expected: func(def *accel.Definition, o host.Opener) bool {
			return a.ours(o.PID) || cleaner.Expected(def, o.PID, o.Pod)
		},
		Recorded: a.recorded, Asked: a.asked, Name: a.podName, Container: a.containerName,
		Changed: a.changed,
	}
}

// openers returns what finds processes, with what the kernel says of their open files. A driver that does not answer is
// remembered from one look to the next.
func (a unrequested) openers() func(context.Context, []accel.DeviceNode, func(string) bool) ([]host.Opener, error) {
	processes := a.Host.Processes()
	read := processes.InfoReader()
	return func(ctx context.Context, nodes []accel.DeviceNode, told func(node string) bool) ([]host.Opener, error) {
		return processes.Openers(ctx, nodes, func(node, file string) (string, error) {
			if !told(node) {
				return "", nil
			}
			return read(node, file)
		})
	}
}

// ours reports whether a process is acceld's own: the agent, a program that it has started, or a command.
func (a unrequested) ours(pid int) bool {
	var programs []string
	if dir := OwnPrograms(); dir != "" {
		for _, name := range []string{"acceld", "acceld-prove"} {
			programs = append(programs, filepath.Join(dir, name))
		}
	}
	p := a.Host.Processes()
	return a.programs.Owns(pid) || p.DescendsFrom(pid, os.Getpid()) || p.Runs(pid, programs...)
}

// recorded returns what is on record on this host of who was given devices of a kind: the kubelet's checkpoint, the
// records of claims, and what the kubelet said last. The first two are written before a container starts.
func (a unrequested) recorded(def *accel.Definition) (all []usage.Grant, problem *accel.Problem) {
	given, err := a.plugins.asker(def).Given()
	if err != nil {
		return nil, accel.Problemf(accel.ProbeUnanswered, "it is not known who was given devices of %q: %v", def.Kind, err)
	}
	for id, pods := range given {
		for _, uid := range pods {
			all = append(all, usage.Grant{Unit: deviceplugin.DeviceOf(id), PodUID: uid})
		}
	}
	for _, h := range a.plugins.prepared() {
		all = append(all, usage.Grant{Unit: h.Accelerator, PodUID: h.UID, Namespace: h.Namespace, Pod: h.Pod})
	}
	for id, holders := range a.holdings.Holdings().By {
		for _, h := range holders {
			all = append(all, usage.Grant{Unit: id, PodUID: h.UID, Namespace: h.Namespace, Pod: h.Pod})
		}
	}
	return all, nil
}

// asked asks the kubelet and the API server who was given devices of a kind.
func (a unrequested) asked(ctx context.Context, def *accel.Definition) (all []usage.Grant, problem *accel.Problem) {
	held, problem := a.users.held(ctx, def)
	if problem != nil {
		return nil, problem
	}
	for id, refs := range held {
		for _, r := range refs {
			all = append(all, usage.Grant{Unit: id, PodUID: r.UID, Namespace: r.Namespace, Pod: r.Pod})
		}
	}
	unread := accel.Problemf(accel.ProbeUnanswered, "it is not known which pods have devices of %q by claims", def.Kind)
	s := a.plugins.slot(claimsOf(def))
	if s == nil {
		if a.plugins.early(def) { // an earlier agent has prepared claims, and nobody has read of which
			return nil, unread
		}
		return all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, kubeletAnswers)
	defer cancel()
	reserved, answered := s.claims.Holders(ctx)
	if _, read := s.claims.Held(); !read || !answered {
		return nil, unread
	}
	for _, h := range reserved {
		all = append(all, usage.Grant{Unit: h.Device, PodUID: h.UID, Namespace: h.Namespace, Pod: h.Pod})
	}
	return all, nil
}

// podName returns the name of the pod with a UID, by the directory of its logs, which the kubelet makes:
// <namespace>_<name>_<uid> (pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory).
func (a unrequested) podName(uid string) (namespace, pod string) {
	for _, dir := range a.Host.Glob("/var/log/pods", "*_*_"+uid) {
		if parts := strings.Split(filepath.Base(dir), "_"); len(parts) == 3 {
			return parts[0], parts[1]
		}
	}
	return "", ""
}

// containerName returns the name of the container with an id in its pod, by the link to its log that the kubelet makes:
// <pod>_<namespace>_<container>-<id>.log (pkg/kubelet/kuberuntime/legacy.go, logSymlink).
func (a unrequested) containerName(id string) string {
	for _, link := range a.Host.Glob("/var/log/containers", "*_*_*-"+id+".log") {
		if parts := strings.Split(strings.TrimSuffix(filepath.Base(link), "-"+id+".log"), "_"); len(parts) == 3 {
			return parts[2]
		}
	}
	return ""
}
