package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/yamlfile"
)

// Config is the agent's configuration, validated. See docs/config.yaml for the annotated file.
type Config struct {
	// Node is the Kubernetes node name.
	Node string
	// Kubeconfig is a file as this process sees it; empty for the service account of a pod.
	Kubeconfig string
	// Kubernetes is "auto" (a kubelet on the host), "on" or "off".
	Kubernetes string
	// Policies tells whether the agent reads the cluster's policies if it has credentials.
	Policies bool
	// Maintenance tells whether the agent says on its node that it works on it.
	Maintenance bool
	// TaintOnRegression tells whether the node gets its startup taint back when a kind is no longer ready.
	TaintOnRegression bool
	// PolicyTrust is what definitions and overrides of policies may contain.
	PolicyTrust accel.PolicyTrust
	// ListAttributes tells whether the cluster takes attributes of devices that are lists (the feature gate
	// DRAListTypeAttributes).
	ListAttributes bool
	// ResourceTopology tells whether the agent writes the NodeResourceTopology of the node.
	ResourceTopology bool
	// Allocation is how pods get devices if neither the kind's own options nor its definition say it. Empty means the
	// device plugin.
	Allocation accel.Allocation
	// Listen is the loopback address of the endpoint; empty for the unix socket alone.
	Listen string
	// Hosts are further names of this host under which that address may be asked.
	Hosts []string
	// Socket is the unix socket of the endpoint.
	Socket string
	// Compatible names additional pages of metrics.
	Compatible []string
	// Remote is the endpoint for scrapers on other machines.
	Remote RemoteConfig
	// Definitions is the directory of definition files, as the host sees it.
	Definitions string
	// StateDir is the directory of store and ledger, as the host sees it.
	StateDir string
	Hook     bool
	CDI      bool
	// RuntimeEdit is "never", "dropin" or "full"; RuntimeRestart is "never", "idle" or "now". Each is empty if the
	// file does not set it.
	RuntimeEdit, RuntimeRestart string
	// LogLevel is "debug", "info", "warn" or "error".
	LogLevel string
	// LogFormat is "auto", "text" or "json".
	LogFormat string
	// Resync is how often the agent reads everything again even without an event. SampleEvery is how often it reads
	// metrics.
	Resync, SampleEvery time.Duration
	LoadTimeout         time.Duration
	BuildTimeout        time.Duration
	// Build limits what the builds of drivers may use.
	Build BuildConfig
	// Prebuilt are sources of type oci or bundle that every kind tries before its own sources.
	Prebuilt []accel.Source
	// Mirrors of the registries and repositories that sources name.
	Mirrors accel.Mirrors
	// Trust says who may sign drivers. It holds for every kind and every source.
	Trust accel.Trust
	// StoreEntries is how many drivers that nothing needs any more the store keeps; -1 for none. StoreMiB limits
	// their total size in MiB; 0 for no limit.
	StoreEntries, StoreMiB int
	// Kinds overrides definitions, by kind.
	Kinds map[string]accel.KindConfig
	// Places are the lines of the file.
	Places yamlfile.Places
}

// BuildConfig limits what one build of a driver may use.
type BuildConfig struct {
	// Jobs is how many compilers run at a time; 0 means one for each processor.
	Jobs int
	// Memory is a limit in bytes, or, if negative, minus the percentage of the machine's memory; 0 for no limit.
	Memory int64
	// CPUWeight is the build's weight on a busy processor, 1 to 10000; everything else has 100.
	CPUWeight int
}

// MemoryBytes returns the limit on a machine with total bytes of memory; 0 for no limit.
func (b BuildConfig) MemoryBytes(total int64) int64 {
	if b.Memory < 0 {
		return total / 100 * -b.Memory
	}
	return b.Memory
}

// defaultDefinitions is the directory of definitions if the file names none. It may be missing.
const defaultDefinitions = "/etc/acceld/definitions.d"

// ParseConfig reads a configuration file's bytes; name is for messages. Empty bytes give the defaults.
func ParseConfig(name string, data []byte) (Config, *accel.Problem) {
	d, empty, faults := yamlfile.One(data)
	var c Config
	switch {
	case empty:
		c, faults = ConfigFile{}.config(nil)
	case len(faults) == 0:
		c, faults = CheckConfig(d)
	}
	if len(faults) > 0 {
		return Config{}, accel.Problemf(accel.ConfigInvalid, "cannot use %q: %s", name, yamlfile.Join(faults))
	}
	return c, nil
}

// CheckConfig reads a document as a configuration, and returns everything that is wrong with it.
func CheckConfig(d yamlfile.Document) (Config, []yamlfile.Fault) {
	var raw ConfigFile
	places, faults := d.Read(&raw)
	if len(faults) > 0 {
		return Config{}, faults
	}
	return raw.config(places)
}

// config validates the file.
func (raw ConfigFile) config(places yamlfile.Places) (Config, []yamlfile.Fault) {
	var faults []yamlfile.Fault
	c := Config{
		Node: raw.Node, Kubeconfig: raw.Kubernetes.Kubeconfig, Kubernetes: string(cmp.Or(raw.Kubernetes.Enabled, "auto")),
		Allocation: raw.Kubernetes.Allocation,
		Listen:     "127.0.0.1:9480", Socket: cmp.Or(raw.Endpoint.Socket, "/run/acceld/acceld.sock"),
		Definitions: cmp.Or(raw.Definitions, defaultDefinitions), StateDir: cmp.Or(raw.StateDir, "/var/lib/acceld"),
		Hook: raw.Runtime.Hook == nil || *raw.Runtime.Hook, CDI: raw.Runtime.CDI == nil || *raw.Runtime.CDI,
		RuntimeEdit: raw.Runtime.Edit, RuntimeRestart: raw.Runtime.Restart,
		LogLevel: cmp.Or(raw.LogLevel, "info"), LogFormat: cmp.Or(raw.LogFormat, "auto"),
		Prebuilt: raw.Prebuilt, Trust: raw.Trust, Kinds: raw.Kinds,
		Mirrors:     raw.Mirrors,
		Policies:    raw.Kubernetes.Policies != "off",
		Maintenance: raw.Kubernetes.Maintenance != "off",

		TaintOnRegression: raw.Kubernetes.TaintOnRegression == "on",
		ListAttributes:    raw.Kubernetes.ListAttributes == "on",
		ResourceTopology:  raw.Kubernetes.ResourceTopology == "on",

		PolicyTrust: cmp.Or(accel.PolicyTrust(raw.Policies.Definitions), accel.PolicyTrustData),
		Compatible:  raw.Endpoint.Compatible, Hosts: raw.Endpoint.Hosts, Remote: raw.Endpoint.Remote,
		Places: places,
	}
	c.Build.Jobs, c.Build.CPUWeight = raw.Build.Jobs, 20
	if raw.Build.CPUWeight != nil {
		c.Build.CPUWeight = *raw.Build.CPUWeight
	}
	if raw.Endpoint.Listen != nil {
		c.Listen = *raw.Endpoint.Listen
	}
	c.StoreEntries, c.StoreMiB = 8, raw.Store.MiB
	if raw.Store.Entries != nil {
		if c.StoreEntries = *raw.Store.Entries; c.StoreEntries == 0 {
			c.StoreEntries = -1
		}
	}
	var errs []error
	errs = append(errs, oneOf("kubernetes.policies", string(cmp.Or(raw.Kubernetes.Policies, "on")), "on, off"),
		oneOf("kubernetes.maintenance", string(cmp.Or(raw.Kubernetes.Maintenance, "on")), "on, off"),
		oneOf("kubernetes.taintOnRegression", string(cmp.Or(raw.Kubernetes.TaintOnRegression, "off")), "on, off"),
		oneOf("kubernetes.listAttributes", string(cmp.Or(raw.Kubernetes.ListAttributes, "off")), "on, off"),
		oneOf("kubernetes.resourceTopology", string(cmp.Or(raw.Kubernetes.ResourceTopology, "off")), "on, off"))
	for _, d := range []struct {
		field, text, otherwise string
		into                   *time.Duration
	}{
		{"resync", raw.Resync, "5m", &c.Resync},
		{"sampleEvery", raw.SampleEvery, "15s", &c.SampleEvery},
		{"loadTimeout", raw.LoadTimeout, "60s", &c.LoadTimeout},
		{"buildTimeout", raw.BuildTimeout, "30m", &c.BuildTimeout},
	} {
		v, err := time.ParseDuration(cmp.Or(d.text, d.otherwise))
		switch {
		case err != nil:
			errs = append(errs, errors.New(d.field+": "+accel.NotATime(d.text, d.otherwise)))
		case v < time.Second:
			errs = append(errs, errors.New(d.field+": must be at least 1s"))
		}
		*d.into = v
	}
	var err error
	if c.Build.Memory, err = parseMemory(cmp.Or(raw.Build.Memory, "80%")); err != nil {
		errs = append(errs, fmt.Errorf("build.memory: %w", err))
	}
	for _, err := range append(errs, c.check()...) {
		if err != nil {
			faults = append(faults, yamlfile.FaultOf(err.Error()))
		}
	}
	return c, places.Locate(faults)
}

// at returns what was found later about a field, "<field>: <sentence>", with the field's line in the file.
func (c Config) at(text string) string {
	return yamlfile.Join(c.Places.Locate([]yamlfile.Fault{yamlfile.FaultOf(text)}))
}

// oneOf returns an error if an option has none of the values in a list such as "on, off", and otherwise nil.
func oneOf(option, value, values string) error {
	if text := accel.NotOneOf(value, strings.Split(values, ", ")...); text != "" {
		return fmt.Errorf("%s: %s", option, text)
	}
	return nil
}

// check returns what is wrong with the values of c, among nils.
func (c Config) check() []error {
	var errs []error
	errs = append(errs, oneOf("kubernetes.enabled", c.Kubernetes, "auto, on, off"))
	for _, text := range (accel.KindConfig{Allocation: c.Allocation}).Problems() {
		errs = append(errs, errors.New("kubernetes."+text))
	}
	errs = append(errs,
		oneOf("policies.definitions", string(c.PolicyTrust), "off, data, all"),
		oneOf("runtime.edit", cmp.Or(c.RuntimeEdit, "never"), "never, dropin, full"),
		oneOf("runtime.restart", cmp.Or(c.RuntimeRestart, "never"), "never, idle, now"),
		oneOf("logLevel", c.LogLevel, "debug, info, warn, error"),
		oneOf("logFormat", c.LogFormat, "auto, text, json"))
	for _, p := range []struct{ field, value string }{
		{"stateDir", c.StateDir}, {"definitions", c.Definitions}, {"endpoint.socket", c.Socket},
	} {
		if !path.IsAbs(p.value) {
			errs = append(errs, fmt.Errorf("%s: %q is not an absolute path: begin it with a slash", p.field, p.value))
		}
	}
	if c.Build.CPUWeight < 1 || c.Build.CPUWeight > 10000 {
		errs = append(errs, fmt.Errorf("build.cpuWeight: %d is not from 1 to 10000", c.Build.CPUWeight))
	}
	if c.Build.Jobs < 0 {
		errs = append(errs, fmt.Errorf("build.jobs: %d is less than 0", c.Build.Jobs))
	}
	if c.StoreEntries < -1 || c.StoreMiB < 0 {
		errs = append(errs, errors.New("store: entries and mib must not be negative"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		for _, text := range c.Kinds[name].Problems() {
			errs = append(errs, fmt.Errorf("kinds.%s.%s", name, text))
		}
	}
	if c.Listen != "" {
		host, _, err := net.SplitHostPort(c.Listen)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			errs = append(errs,
				fmt.Errorf("endpoint.listen: %q is not a loopback address with a port, such as 127.0.0.1:9480; for "+
					"scrapers on other machines set endpoint.remote.listen, which needs TLS and says who may ask", c.Listen))
		}
	}
	errs = append(errs, c.Remote.check()...)
	for _, text := range c.Trust.Problems() {
		errs = append(errs, errors.New("trust."+text))
	}
	for _, text := range c.Mirrors.Problems() {
		errs = append(errs, errors.New("mirrors."+text))
	}
	for i, s := range c.Prebuilt {
		if s.Push && c.Trust.Require {
			errs = append(errs, fmt.Errorf("prebuilt[%d].push: a host has no key to sign with, and trust.require refuses "+
				"what is unsigned; push signed drivers with `acceld driver build --push --sign-key`", i))
		}
		if !s.Type.Prebuilt() {
			errs = append(errs, fmt.Errorf("prebuilt[%d].type: %s", i, accel.NotPrebuilt(s.Type)))
			continue
		}
		for _, text := range s.Problems() {
			errs = append(errs, fmt.Errorf("prebuilt[%d].%s", i, text))
		}
	}
	return errs
}

// parseMemory reads "80%" of the machine's memory as -80, a quantity such as "4Gi" as bytes, and "none" as 0.
func parseMemory(text string) (int64, error) {
	if text == "none" {
		return 0, nil
	}
	if share, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.Atoi(share)
		if err != nil || n < 1 || n > 100 {
			return 0, fmt.Errorf("%q is not from 1%% to 100%%", text)
		}
		return int64(-n), nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() < 64<<20 {
		return 0, fmt.Errorf("%q is neither a share such as 80%%, nor at least 64Mi such as 4Gi, nor none", text)
	}
	return q.Value(), nil
}

// Override returns the definitions in force: defs with the configuration's overrides applied and disabled kinds left
// out. An override for a kind without a definition is an error, because it must be a typing mistake.
func (c Config) Override(defs map[string]*accel.Definition) (map[string]*accel.Definition, *accel.Problem) {
	out := map[string]*accel.Definition{}
	for name, def := range defs {
		asked := c.Kinds[name].Enabled
		if def.Enabled != nil && !*def.Enabled && (asked == nil || !*asked) {
			continue
		}
		d := *def
		d.Driver.Sources = slices.Concat(c.Prebuilt, def.Driver.Sources)
		d.Allocation = cmp.Or(c.Kinds[name].Allocation, def.Allocation, c.Allocation)
		out[name] = &d
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		_, ok := defs[name]
		if !ok {
			known := slices.Sorted(maps.Keys(defs))
			return nil, accel.Problemf(accel.ConfigInvalid, "kinds.%s: no definition has this kind (known: %s)%s", name,
				strings.Join(known, ", "), accel.DidYouMean(name, known))
		}
		k := c.Kinds[name]
		if k.Enabled != nil && !*k.Enabled {
			delete(out, name)
		}
		if out[name] == nil {
			continue
		}
		if k.Driver.Sources != nil {
			k.Driver.Sources = slices.Concat(c.Prebuilt, k.Driver.Sources)
		}
		d, misfit := k.Apply(out[name])
		if misfit != "" {
			return nil, accel.Problemf(accel.ConfigInvalid, "kinds.%s.%s", name, misfit)
		}
		out[name] = d
	}
	if problem := sameResource(out); problem != nil {
		return nil, problem
	}
	return out, nil
}

// sameResource refuses two kinds with the same resource name if the configuration can fix it: the kubelet would
// mistake one for the other. It returns nil if every name is unique.
func sameResource(defs map[string]*accel.Definition) *accel.Problem {
	by := map[string]string{}
	for _, kind := range slices.Sorted(maps.Keys(defs)) {
		name := defs[kind].Offered()
		if text := accel.ResourceProblem(name); text != "" && name != defs[kind].Resource {
			return accel.Problemf(accel.ConfigInvalid, "kinds.%s: %s", kind, text)
		}
		if other := by[name]; other != "" && (name != defs[kind].Resource || name != defs[other].Resource) {
			return accel.Problemf(accel.ConfigInvalid, "kinds.%s: the resource %q is that of kind %q", kind, name,
				other)
		}
		by[name] = kind
	}
	return nil
}

// ReadConfig reads the configuration from file. A missing file gives the defaults unless the user named the file.
func ReadConfig(file string, asked bool) (Config, *accel.Problem) {
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		return ParseConfig("the defaults", nil)
	case errors.Is(err, fs.ErrPermission):
		return Config{}, accel.Problemf(accel.PermissionDenied, "cannot read %q: permission denied", file)
	case err != nil:
		return Config{}, accel.Problemf(accel.ConfigInvalid, "cannot read %q: %v", file, err)
	}
	return ParseConfig(file, data)
}
