package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// maxGroups is how many control groups [Processes.Pods] looks at. A machine with 250 pods has a few thousand.
const maxGroups = 1 << 16

// Pods are pods by their UID.
type Pods map[string]bool

// Has reports whether a pod is among them.
func (p Pods) Has(uid string) bool { return p[groupName(uid)] }

// groupName is a UID as the name of a systemd slice may have it.
func groupName(uid string) string { return strings.ReplaceAll(uid, "-", "_") }

// Pods returns the pods that have a control group. The kubelet creates it before a pod's first container and removes it
// after the last one. With --cgroups-per-qos=false it creates none; Pods then returns the pods that have a directory in
// the kubelet's own, until they are deleted.
func (p Processes) Pods(kubelet string) (Pods, error) {
	pods, known := Pods{}, false
	queue := []string{"/sys/fs/cgroup"}
	for i := 0; i < len(queue); i++ {
		dir := queue[i]
		entries, err := p.h.ReadDir(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has just been removed
		case err != nil:
			return nil, fmt.Errorf("cannot find the control groups of pods: %w", err)
		case i == maxGroups:
			return nil, fmt.Errorf("cannot find the control groups of pods: there are more than %d groups", maxGroups)
		}
		known = known || strings.Contains(path.Base(dir), "kubepods")
		for _, e := range entries {
			uid := podGroup(e.Name())
			switch {
			case !e.IsDir():
			case uid != "" && strings.Contains(dir, "kubepods"):
				pods[groupName(uid)] = true
			default:
				queue = append(queue, path.Join(dir, e.Name()))
			}
		}
	}
	if known {
		return pods, nil
	}
	names, err := p.h.Names(path.Join(kubelet, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot find the directories of pods: %w", err)
	}
	for _, uid := range names {
		pods[groupName(uid)] = true
	}
	return pods, nil
}

// podGroup returns the UID of the pod whose control group has a name, which is "pod<UID>" or "<parents>-pod<UID>.slice"
// (the kubelet's two cgroup drivers); empty if it is no pod's.
func podGroup(name string) string {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok {
		name = slice[strings.LastIndex(slice, "-")+1:]
	}
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok {
		return ""
	}
	return uid
}
