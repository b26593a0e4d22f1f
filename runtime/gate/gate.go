// Package gate is the contract between the agent, which knows whether a device is ready, and acceld-hook, which
// stops a container whose device is not. It defines the format of one small file and the decision based on it. It
// uses only the standard library, because the hook must stay tiny and start fast. It may not read an image or a
// container's environment: strangers write both. From the annotations it reads only the identity that the container
// runtime writes there.
package gate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Path is where the agent publishes the readiness of devices. It is on a volatile file system on purpose: after a
// reboot nothing is ready until an agent reports it.
const Path = "/run/acceld/devices.json"

// Annotation is the container annotation that makes CRI-O and podman run the hook. It only triggers the hook and
// proves nothing, because a pod's author can write it too.
const Annotation = "acceld.dev/devices"

// Version is the version of the file format.
const Version = 1

// File is the content of the readiness file.
type File struct {
	Version int `json:"version"`
	// Devices are sorted by ID.
	Devices []Device `json:"devices"`
	// Choices are for the pods that were bound to this node with chosen devices. A hook that does not know the field
	// does not check them.
	Choices []Choice `json:"choices,omitempty"`
}

// Device is the readiness of one accelerator.
type Device struct {
	ID   string `json:"id"`   // PCI address
	Kind string `json:"kind"` // "<vendor>-<hardware>"
	// Nodes are its device nodes. They are empty if the device is gone, because another device may have their names
	// by now.
	Nodes []Node `json:"nodes,omitempty"`
	Ready bool   `json:"ready"`
	// Reason and Message say why a device is not ready.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Handover is how many seconds a container waits at most until the agent has handed it the device; 0 if it does not
	// have to ask.
	Handover int `json:"handover,omitempty"`
}

// Node is a device node as the host sees it.
type Node struct {
	Path  string `json:"path"`
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

// Container is the part of an OCI bundle's config.json that the gate reads.
type Container struct {
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		Devices []ContainerDevice `json:"devices"`
	} `json:"linux"`
}

// ContainerDevice is an entry of linux.devices of the OCI runtime specification.
type ContainerDevice struct {
	Path  string `json:"path"`
	Type  string `json:"type"` // "c", "b", "u" or "p"
	Major int64  `json:"major"`
	Minor int64  `json:"minor"`
}

// Limits on the readiness file. A host has some hundred devices, divided ones included.
const (
	maxDevices = 8192 // devices, and choices
	maxNodes   = 256  // nodes of a device, or devices of a choice
	maxName    = 256  // bytes of an ID, a kind, a reason or a container's name
	maxPath    = 4096 // bytes of a node's path (PATH_MAX)
	maxMessage = 512  // bytes of a message, which becomes part of a pod's event
)

// MaxHandover is how many seconds a container waits for a device at most.
const MaxHandover = 60

// Encode renders f as the bytes of the readiness file, with its devices sorted by ID. Long messages are shortened.
func Encode(f File) ([]byte, error) {
	f.Version = Version
	f.Devices = slices.Clone(f.Devices)
	for i := range f.Devices {
		f.Devices[i].Message = shorten(f.Devices[i].Message)
	}
	slices.SortFunc(f.Devices, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	b, err := json.MarshalIndent(f, "", "  ")
	return append(b, '\n'), err
}

// Decode parses the bytes of a readiness file. Any other version is an error: what the hook does not understand must
// not open the gate.
func Decode(b []byte) (File, error) {
	var f File
	if err := json.Unmarshal(b, &f); err != nil {
		return File{}, fmt.Errorf("cannot parse the readiness of devices: %w", err)
	}
	if f.Version != Version {
		return File{}, fmt.Errorf("cannot use the readiness of devices: version %d is not %d", f.Version, Version)
	}
	if what := f.excess(); what != "" {
		return File{}, fmt.Errorf("cannot use the readiness of devices: it has %s", what)
	}
	return f, nil
}

// excess says what in f exceeds a limit; empty if nothing does.
func (f File) excess() string {
	if len(f.Devices) > maxDevices || len(f.Choices) > maxDevices {
		return fmt.Sprintf("more than %d devices or choices", maxDevices)
	}
	for _, d := range f.Devices {
		long := func(n Node) bool { return len(n.Path) > maxPath }
		if len(d.Nodes) > maxNodes || slices.ContainsFunc(d.Nodes, long) || longest(d.ID, d.Kind, d.Reason) > maxName ||
			len(d.Message) > maxMessage || d.Handover < 0 || d.Handover > MaxHandover {
			return fmt.Sprintf("a device with too much of something: %.40q", d.ID)
		}
	}
	for _, c := range f.Choices {
		if len(c.Devices) > maxNodes || longest(c.Devices...) > maxName || longest(c.Pod, c.Container) > maxName {
			return fmt.Sprintf("a choice with too much of something, for pod %.40q", c.Pod)
		}
	}
	return ""
}

// longest returns the length of the longest text, in bytes.
func longest(texts ...string) int {
	n := 0
	for _, t := range texts {
		n = max(n, len(t))
	}
	return n
}

// shorten cuts a message to the limit, between two characters.
func shorten(message string) string {
	const more = "…"
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}

// Named decides about the devices that the CDI spec injected, by ID. It returns nil if all of them are ready,
// otherwise an error whose text is the one line that a pod's event shows.
func (f File) Named(ids []string) error {
	for _, id := range ids {
		i := slices.IndexFunc(f.Devices, func(d Device) bool { return d.ID == id })
		if i < 0 {
			return notReady(id, "Unknown", "the agent has not published it")
		}
		if err := f.Devices[i].err(); err != nil {
			return err
		}
	}
	return nil
}

// Given decides about the devices in a container's specification. An entry that is a known device, by number or by
// name, must be ready. Entries that acceld does not know are ignored.
func (f File) Given(devices []ContainerDevice) error {
	for _, given := range devices {
		for _, d := range f.Devices {
			if d.has(given) && !d.Ready {
				return d.err()
			}
		}
	}
	return nil
}

// has reports whether an entry is one of the device's nodes.
func (d Device) has(c ContainerDevice) bool { return slices.ContainsFunc(d.Nodes, c.is) }

func (c ContainerDevice) is(n Node) bool {
	if c.Type != "c" && c.Type != "u" && c.Type != "b" {
		return false
	}
	return c.Path == n.Path || (c.Type != "b" && c.Major == int64(n.Major) && c.Minor == int64(n.Minor))
}

func (d Device) err() error {
	if d.Ready {
		return nil
	}
	name := d.ID
	if len(d.Nodes) > 0 {
		name = d.Nodes[0].Path + " (" + d.ID + ")"
	}
	return notReady(name, d.Reason, d.Message)
}

// notReady builds the error's one line.
func notReady(name, reason, message string) error {
	text := fmt.Sprintf("device %s is not ready: %s", name, strings.TrimSuffix(reason+": "+message, ": "))
	return errors.New(strings.Join(strings.Fields(text), " "))
}
