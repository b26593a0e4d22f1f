package accel

// Want is what the operator's file or a policy asks of this host, validated.
type Want struct {
	// Kubernetes tells whether the host serves a kubelet: the device plugin.
	Kubernetes bool `json:"kubernetes"`
	// Labels tells whether there are credentials for the API server: labels, condition, events and taint.
	Labels bool `json:"labels"`
	// Hook asks for the CRI-O OCI hook besides the CDI spec.
	Hook bool `json:"hook"`
	// CDI is false where the runtime cannot inject CDI devices: Allocate then answers with device specs.
	CDI bool `json:"cdi"`
	// Kinds are the definitions in force, by kind, the file's overrides applied. A disabled kind is not in the map.
	Kinds map[string]*Definition `json:"kinds,omitempty"`
	// Unsure is true while the policies of the cluster are to be read and nobody has, now or before: until then no
	// driver that serves is replaced.
	Unsure bool `json:"unsure,omitempty"`
	// Problem says why the configuration on the disk cannot be used; then the one before stays in force.
	Problem *Problem `json:"problem,omitempty"`
}
