package policy

import "github.com/acceld/acceld/kube"

// pod holds the fields that are read of a pod.
type pod struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		NodeName string `json:"nodeName,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase      string            `json:"phase,omitempty"`
		Reason     string            `json:"reason,omitempty"`
		Message    string            `json:"message,omitempty"`
		Conditions conditions        `json:"conditions,omitempty"`
		Containers []containerStatus `json:"containerStatuses,omitempty"`
		Inits      []containerStatus `json:"initContainerStatuses,omitempty"`
	} `json:"status"`
}

type containerStatus struct {
	State     containerState `json:"state"`
	LastState containerState `json:"lastState"`
}

type containerState struct {
	Running    *struct{} `json:"running,omitempty"`
	Terminated *struct {
		ExitCode int    `json:"exitCode"`
		Reason   string `json:"reason,omitempty"`
		Message  string `json:"message,omitempty"`
	} `json:"terminated,omitempty"`
}

// over reports whether the pod has ended.
func (p *pod) over() bool { return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" }
