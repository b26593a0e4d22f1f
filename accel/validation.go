package accel

import (
	"maps"
	"slices"
	"time"
)

// problems returns the errors in the validation of a policy for these kinds, each as "<field>: <sentence>".
func (v Validation) problems(kinds map[string]KindConfig) []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(v.Workloads)) {
		field, w := "workloads."+kind, v.Workloads[kind]
		if _, named := kinds[kind]; !named {
			out = append(out, field+": the policy does not hold for the kind; name it under kinds")
		}
		if w.Image == "" {
			out = append(out, field+".image: it is empty")
		}
		if text := ResourceProblem(w.Resource); text != "" {
			out = append(out, field+".resource: "+text)
		}
	}
	return append(out, durationProblem("timeout", v.Timeout, time.Second, "5m")...)
}
