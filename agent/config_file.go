package agent

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/yamlfile"
)

// ConfigFile is the configuration of the agent as its file has it. Every field may be missing. Unknown fields are
// errors: a misspelt option that does nothing is worse than none.
type ConfigFile struct {
	// Node is the Kubernetes node name. Default: $NODE_NAME, else the host name.
	Node string `json:"node,omitempty"`
	// Kubernetes says what the agent does with a kubelet and an API server.
	Kubernetes kubernetesPart `json:"kubernetes,omitzero"`
	// Policies says what policies of the cluster may bring.
	Policies policiesPart `json:"policies,omitzero"`
	// Endpoint is where the agent serves metrics, health, the machine and the status page.
	Endpoint endpointPart `json:"endpoint,omitzero"`
	// Runtime says how containers get devices, and what may be changed for that.
	Runtime runtimePart `json:"runtime,omitzero"`
	// Definitions is the directory of further definitions, *.yaml, as the host sees it. Default:
	// /etc/acceld/definitions.d.
	Definitions string `json:"definitions,omitempty"`
	// StateDir is the directory of the driver store and of everything else that outlives the agent, as the host sees
	// it. Default: /var/lib/acceld.
	StateDir string `json:"stateDir,omitempty"`
	// LogLevel is what is logged at least. Default: info, one line for each change of state.
	LogLevel string `json:"logLevel,omitempty" enum:"debug,info,warn,error"`
	// LogFormat is how it is logged: auto for entries with fields in the journal and lines of text elsewhere, text, or
	// json. Default: auto.
	LogFormat string `json:"logFormat,omitempty" enum:"auto,text,json"`
	// Resync is how often the agent reads everything again even without an event, such as "5m", the default.
	Resync string `json:"resync,omitempty" form:"duration"`
	// SampleEvery is how often metrics are read from the devices, such as "15s", the default.
	SampleEvery string `json:"sampleEvery,omitempty" form:"duration"`
	// LoadTimeout is how long the initialisation of a kernel module may take, such as "60s", the default.
	LoadTimeout string `json:"loadTimeout,omitempty" form:"duration"`
	// BuildTimeout is how long a build may take, such as "30m", the default.
	BuildTimeout string `json:"buildTimeout,omitempty" form:"duration"`
	// Build limits what the builds of drivers may use.
	Build buildPart `json:"build,omitzero"`
	// Prebuilt are sources of type oci or bundle that every kind tries before its own sources.
	Prebuilt []accel.Source `json:"prebuilt,omitempty"`
	// Mirrors of the registries and package repositories that sources name, by the name of the registry or the URL of
	// the repository.
	Mirrors accel.Mirrors `json:"mirrors,omitempty"`
	// Trust says who may sign drivers on this host, for every kind and every source.
	Trust accel.Trust `json:"trust,omitzero"`
	// Store limits what is kept of drivers that nothing needs any more.
	Store storePart `json:"store,omitzero"`
	// Kinds overrides definitions, by kind.
	Kinds map[string]accel.KindConfig `json:"kinds,omitempty"`
}

// kubernetesPart says what the agent does with a kubelet and an API server.
type kubernetesPart struct {
	// Enabled is auto to serve a kubelet when there is one on the host, on to wait for it, or off on bare metal.
	// Default: auto.
	Enabled yamlfile.Switch `json:"enabled,omitempty" enum:"auto,on,off"`
	// Kubeconfig is the file with credentials for labels, condition and events of the node. Default: the pod's service
	// account, and without one none.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Allocation is how pods get devices of kinds that do not say it themselves: as an extended resource, or by
	// resource claims. Default: devicePlugin.
	Allocation accel.Allocation `json:"allocation,omitempty"`
	// Policies is on to carry out the AcceleratorPolicies of the cluster, or off to follow this file alone. Default:
	// on.
	Policies yamlfile.Switch `json:"policies,omitempty" enum:"on,off"`
	// Maintenance is on to say on the node when acceld itself takes it out of service. Default: on.
	Maintenance yamlfile.Switch `json:"maintenance,omitempty" enum:"on,off"`
	// TaintOnRegression is on to give the node its startup taint back when a kind that was ready no longer is, so that
	// no pod comes until all are. Default: off.
	TaintOnRegression yamlfile.Switch `json:"taintOnRegression,omitempty" enum:"on,off"`
	// ListAttributes is on to publish attributes of devices as lists, where the cluster has the feature gate
	// DRAListTypeAttributes. Default: off.
	ListAttributes yamlfile.Switch `json:"listAttributes,omitempty" enum:"on,off"`
	// ResourceTopology is on to write the NodeResourceTopology of the node, from which scheduler plugins know what each
	// NUMA node has left. Default: off.
	ResourceTopology yamlfile.Switch `json:"resourceTopology,omitempty" enum:"on,off"`
}

// policiesPart says what policies of the cluster may bring.
type policiesPart struct {
	// Definitions is what definitions of policies may contain: off for none, data for those that only describe devices,
	// all for whatever a file of the host may contain. Default: data.
	Definitions yamlfile.Switch `json:"definitions,omitempty" enum:"off,data,all"`
}

// endpointPart is where the agent serves metrics, health, the machine and the status page.
type endpointPart struct {
	// Listen is a loopback address with a port, such as "127.0.0.1:9480", the default; "" for the socket alone.
	Listen *string `json:"listen,omitempty"`
	// Hosts are further names of this host under which that address may be asked.
	Hosts []string `json:"hosts,omitempty"`
	// Socket is the unix socket that `acceld status` asks. Default: /run/acceld/acceld.sock.
	Socket string `json:"socket,omitempty"`
	// Compatible names further pages of metrics, under the names that dashboards for another exporter ask for, such as
	// gpu-operator.
	Compatible []string `json:"compatible,omitempty"`
	// Remote is where scrapers on other machines get the pages of metrics, by TLS.
	Remote RemoteConfig `json:"remote,omitzero"`
}

// runtimePart says how containers get devices, and what may be changed for that.
type runtimePart struct {
	// Hook is the OCI hook that refuses to start a container with a device that is not ready. Default: true.
	Hook *bool `json:"hook,omitempty"`
	// CDI gives devices to containers by CDI name; with false the kubelet gets device nodes instead. Default: true.
	CDI *bool `json:"cdi,omitempty"`
	// Edit is what may be changed if the container runtime does not read CDI specs: never, dropin for a file of
	// acceld's own, or full for one line in the runtime's own file too.
	Edit string `json:"edit,omitempty" enum:"never,dropin,full"`
	// Restart is when the container runtime may be restarted for that: never, idle if it creates no pod, or now.
	Restart string `json:"restart,omitempty" enum:"never,idle,now"`
}

// buildPart limits what the builds of drivers may use.
type buildPart struct {
	// Jobs is how many compilers run at a time; 0, the default, means one for each processor.
	Jobs int `json:"jobs,omitempty"`
	// Memory is a share of the machine's memory such as "80%", the default, a quantity such as "4Gi", or none.
	Memory string `json:"memory,omitempty" form:"memory"`
	// CPUWeight is the build's weight on a busy processor, 1 to 10000; everything else has 100. Default: 20.
	CPUWeight *int `json:"cpuWeight,omitempty"`
}

// storePart limits what is kept of drivers that nothing needs any more.
type storePart struct {
	// Entries is how many of them stay, the youngest; 0 for none. Default: 8.
	Entries *int `json:"entries,omitempty"`
	// MiB is their total size in MiB; 0, the default, sets no limit.
	MiB int `json:"mib,omitempty"`
}
