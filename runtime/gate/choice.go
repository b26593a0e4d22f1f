package gate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Choice is what the scheduler's extender chose for one container of a pod on this node. The kubelet allocates
// devices without naming the pod, so it may rarely get the wrong ones; the gate knows the pod.
type Choice struct {
	Pod       string `json:"pod"` // UID
	Container string `json:"container"`
	// Devices are the IDs of the devices that were chosen for it.
	Devices []string `json:"devices"`
}

// identity returns the pod's UID and the container's name from the container runtime's annotations: CRI-O's, then
// containerd's (internal/cri/annotations of containerd 2.1). A pod's author who could write them would avoid a
// check, but would not get a device by it.
func (c Container) identity() (pod, container string) {
	a := c.Annotations
	return cmp.Or(a["io.kubernetes.pod.uid"], a["io.kubernetes.cri.sandbox-uid"]),
		cmp.Or(a["io.kubernetes.container.name"], a["io.kubernetes.cri.container-name"])
}

// choice returns what was chosen for the container; nil if nothing was.
func (f File) choice(c Container) *Choice {
	pod, name := c.identity()
	i := slices.IndexFunc(f.Choices, func(x Choice) bool { return x.Pod == pod && x.Container == name })
	if i < 0 || pod == "" {
		return nil
	}
	return &f.Choices[i]
}

// Chosen returns an error if the container has devices other than the chosen ones of their kinds. IDs are the
// devices that the CDI spec injected; if empty, the devices in the container's specification count.
func (f File) Chosen(c Container, ids []string) error {
	x := f.choice(c)
	if x == nil {
		return nil
	}
	var chosen []Device
	for _, d := range f.Devices {
		if slices.Contains(x.Devices, d.ID) {
			chosen = append(chosen, d)
		}
	}
	for _, d := range f.Devices {
		// Nobody chose devices of other kinds.
		if slices.Contains(x.Devices, d.ID) ||
			!slices.ContainsFunc(chosen, func(o Device) bool { return o.Kind == d.Kind }) {
			continue
		}
		given := slices.Contains(ids, d.ID)
		if len(ids) == 0 { // the nodes of a divided device may also belong to a chosen one
			given = slices.ContainsFunc(c.Linux.Devices, func(g ContainerDevice) bool {
				return d.has(g) && !slices.ContainsFunc(chosen, func(o Device) bool { return o.has(g) })
			})
		}
		if given {
			return fmt.Errorf(
				"device %s is not the one that the scheduler chose for this container, which is %s: delete the pod, so that it gets another one",
				d.ID, strings.Join(x.Devices, ","))
		}
	}
	return nil
}

// container reads the specification of the container with the given OCI state.
func container(state []byte) (Container, error) {
	var s struct {
		Bundle string `json:"bundle"`
	}
	var c Container
	if err := json.Unmarshal(state, &s); err != nil {
		return c, fmt.Errorf("cannot parse the container's state: %w", err)
	}
	if !filepath.IsAbs(s.Bundle) {
		return c, fmt.Errorf("cannot use the container's state: bundle %q is not an absolute path", s.Bundle)
	}
	b, err := read(filepath.Join(s.Bundle, "config.json"), maxSpec)
	if err != nil {
		return c, fmt.Errorf("cannot read the container's specification: %w", err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("cannot parse the container's specification: %w", err)
	}
	return c, nil
}
