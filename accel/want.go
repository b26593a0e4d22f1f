package accel

// Want is the validated configuration of this host, from the operator's file or a policy.
type Want struct {
	// Kubernetes says whether the host has a kubelet that the device plugin should serve.
	Kubernetes bool `json:"kubernetes"`
	// Labels says whether there are credentials for the API server, to write labels, condition, events and taint.
	Labels bool `json:"labels"`
	// Hook asks for the CRI-O OCI hook in addition to the CDI spec.
	Hook bool `json:"hook"`
	// CDI is false if the runtime cannot inject CDI devices: Allocate then answers with device specs.
	CDI bool `json:"cdi"`
	// Kinds are the enabled definitions, by kind, with the overrides of the file applied.
	Kinds map[string]*Definition `json:"kinds,omitempty"`
	// PoliciesUnknown is true while the cluster's policies should be read but never have been. Until then no driver in
	// use is replaced.
	PoliciesUnknown bool `json:"policiesUnknown,omitempty"`
	// InCluster are the kinds whose devices have their history kept in the cluster too, sorted.
	InCluster []string `json:"inCluster,omitempty"`
	// Problem says why the configuration on disk is unusable; the previous one then stays in effect.
	Problem *Problem `json:"problem,omitempty"`
}
