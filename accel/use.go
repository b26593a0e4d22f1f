package accel

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Usage says how the driver of a kind tells what each of its users uses of a device: in the fdinfo of the device nodes
// that processes have open (proc_pid_fdinfo(5)), in the form of the kernel's Documentation/gpu/drm-usage-stats.rst.
// Without it, nodes below /dev/dri and /dev/accel are read.
type Usage struct {
	// Prefix begins the keys of the driver, such as "edu-"; "drm-" when empty.
	Prefix string `json:"prefix,omitempty"`
	// Memory are the regions that are memory of the device, such as "vram". If it is empty, or the driver names none of
	// them, all regions count.
	Memory []string `json:"memory,omitempty"`
}

// Limits of what counts as a name of an engine or of a region of memory, and how many a user has.
const (
	maxUsageRegions = 16
	maxUsageWord    = 32
	// MaxEngines is how many engines of a user are counted.
	MaxEngines = 16
	// MaxUsers is how many users of a device [UseHave.Users] names.
	MaxUsers = 128
)

var (
	usagePrefix = regexp.MustCompile(`^[a-z][a-z0-9]{0,15}-$`)
	usageWord   = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]*$`)
)

// UsageWord reports whether a text may be the name of an engine or of a region of memory.
func UsageWord(text string) bool { return len(text) <= maxUsageWord && usageWord.MatchString(text) }

// Problems returns the errors in u, each as "<field>: <sentence>".
func (u Usage) Problems() []string {
	var out []string
	form := Form{Expr: usagePrefix, Say: "lower-case letters and digits with a dash at the end, such as drm-"}
	if u.Prefix != "" {
		if text := form.Problem(u.Prefix); text != "" {
			out = append(out, "prefix: "+text)
		}
	}
	if len(u.Memory) > maxUsageRegions {
		out = append(out, fmt.Sprintf("memory: there are %d, at most %d", len(u.Memory), maxUsageRegions))
	}
	for i, region := range u.Memory {
		if !UsageWord(region) {
			out = append(out, fmt.Sprintf("memory[%d]: %.64q is not the name of a region, such as vram", i, region))
		}
	}
	return out
}

// UsagePrefix returns what begins the keys of the driver in the fdinfo of an open node; empty if the node's driver says
// nothing there.
func (def *Definition) UsagePrefix(node string) string {
	const usual = "drm-"
	switch {
	case def.Usage != nil:
		return cmp.Or(def.Usage.Prefix, usual)
	case strings.HasPrefix(node, "/dev/dri/"), strings.HasPrefix(node, "/dev/accel/"):
		return usual
	}
	return ""
}

// UseHave is what the users of a device use of it, as of the last look.
type UseHave struct {
	// Unknown says why it is not known; empty if it is.
	Unknown string `json:"unknown,omitempty"`
	// Users are at most [MaxUsers] of them, pods first, always in the same order. LeftOut is how many more there are.
	Users   []User `json:"users,omitempty"`
	LeftOut int    `json:"leftOut,omitempty"`
	// Unread is how many open files there are whose use the driver or the probe program tells in a form that cannot be
	// read.
	Unread int `json:"unread,omitempty"`
	// Outside is how long engines have worked for all users outside pods together since the first look, those that have
	// ended included. It never falls before the next boot.
	Outside map[string]float64 `json:"outsideEngineSeconds,omitempty"`
}

// User is a container of a pod, a container in no pod or a service of the host that uses a device.
type User struct {
	// PodUID, Namespace and Pod identify the pod. They are empty outside pods; the names are also empty if they are
	// unknown.
	PodUID    string `json:"podUID,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Container is the name of the pod's container, or the beginning of the container's id if the name is not known;
	// empty outside containers. NamedContainer is true for a name.
	Container      string `json:"container,omitempty"`
	NamedContainer bool   `json:"namedContainer,omitempty"`
	// Unit is the name of the service, the scope or the control group of processes outside containers.
	Unit string `json:"unit,omitempty"`
	// Processes is how many of its processes use the device.
	Processes int `json:"processes"`
	// MemoryBytes is the memory of the device that it has now.
	MemoryBytes Answer[int64] `json:"memoryBytes,omitzero"`
	// EngineSeconds is how long each engine of the device has worked for it, by the engine's name. It does not fall as
	// long as the user lives.
	EngineSeconds map[string]float64 `json:"engineSeconds,omitempty"`
	// Busy is the share of time in which the busiest of these engines worked for it between the last two looks, 0 to 1.
	Busy Answer[float64] `json:"busy,omitzero"`
}

// InPod reports whether the user is a container of a pod.
func (u User) InPod() bool { return u.PodUID != "" }

// Who names the user, for people: "ml/train-0 (main)", "container 0f1e2d3c4b5a", "example.service".
func (u User) Who() string {
	switch {
	case u.InPod():
		name := u.PodUID
		if u.Pod != "" {
			name = u.Namespace + "/" + u.Pod
		}
		if u.Container != "" {
			name += " (" + u.Container + ")"
		}
		return name
	case u.Container != "":
		return "container " + u.Container
	}
	return cmp.Or(u.Unit, "a process of the host")
}

// MemoryText returns the memory, such as "1.5 GiB"; empty if it is not known.
func (u User) MemoryText() string {
	if !u.MemoryBytes.Known {
		return ""
	}
	n, units := float64(u.MemoryBytes.Value), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for len(units) > 1 && n >= 1<<10 {
		n, units = n/(1<<10), units[1:]
	}
	if n < 10 && n != math.Trunc(n) {
		return fmt.Sprintf("%.1f %s", n, units[0])
	}
	return fmt.Sprintf("%.0f %s", n, units[0])
}

// EngineText returns the time of each engine, such as "compute 1h2m3s, copy 14.2s"; empty if there is none.
func (u User) EngineText() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(u.EngineSeconds)) {
		took, to := time.Duration(u.EngineSeconds[name]*float64(time.Second)), time.Second
		if took < time.Minute {
			to = 10 * time.Millisecond
		}
		parts = append(parts, name+" "+took.Round(to).String())
	}
	return strings.Join(parts, ", ")
}

// BusyText returns the share of time, such as "12 %"; empty if it is not known.
func (u User) BusyText() string {
	if !u.Busy.Known {
		return ""
	}
	return fmt.Sprintf("%.0f %%", u.Busy.Value*100)
}

// Rest says for people what the list of users lacks; empty if it is complete.
func (h UseHave) Rest() string {
	var parts []string
	if h.LeftOut > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", h.LeftOut))
	}
	if h.Unread == 1 {
		parts = append(parts, "1 open file whose use cannot be read")
	} else if h.Unread > 1 {
		parts = append(parts, fmt.Sprintf("%d open files whose use cannot be read", h.Unread))
	}
	return strings.Join(parts, "; ")
}

// Public returns h without the names of the host's services and the ids of containers, for pages that are served over
// TCP.
func (h *UseHave) Public() *UseHave {
	if h == nil {
		return nil
	}
	out := *h
	out.Users = slices.Clone(h.Users)
	for i := range out.Users {
		u := &out.Users[i]
		u.Unit = ""
		switch {
		case u.NamedContainer || u.Container == "":
		case u.InPod():
			u.Container = ""
		default:
			u.Container = "unnamed"
		}
	}
	return &out
}
