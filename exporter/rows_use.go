package exporter

import (
	"cmp"
	"maps"
	"slices"

	"github.com/acceld/acceld/accel"
)

// tenant identifies the container of a pod in the metrics about use; the zero tenant is all users outside pods.
// Services of the host and ids of containers are in no metric, because metrics are served over TCP.
type tenant struct{ namespace, pod, uid, container string }

// share is what a tenant uses of a device.
type share struct {
	memory  accel.Answer[int64]
	engines map[string]float64 // seconds
}

// shares returns what each tenant uses of a device.
func shares(h *accel.UseHave) map[tenant]*share {
	all := map[tenant]*share{}
	if h == nil {
		return all
	}
	of := func(t tenant) *share {
		if all[t] == nil {
			all[t] = &share{engines: map[string]float64{}}
		}
		return all[t]
	}
	if len(h.Outside) > 0 {
		of(tenant{}).engines = h.Outside // the sum of those that are there now would fall when one of them ends
	}
	for _, u := range h.Public().Users {
		t := tenant{u.Namespace, u.Pod, u.PodUID, u.Container}
		if !u.InPod() {
			t = tenant{}
		}
		s := of(t)
		if u.MemoryBytes.Known {
			s.memory = accel.Known(s.memory.Value + u.MemoryBytes.Value)
		}
		if u.InPod() {
			for engine, n := range u.EngineSeconds {
				s.engines[engine] += n
			}
		}
	}
	return all
}

// useRows are the metrics about what each container uses of a device.
func useRows() []row {
	labels := []string{"namespace", "pod", "pod_uid", "container"}
	each := func(d *device, visit func(t tenant, s *share)) {
		all := shares(d.Use)
		order := func(a, b tenant) int {
			return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod), cmp.Compare(a.uid, b.uid),
				cmp.Compare(a.container, b.container))
		}
		for _, t := range slices.SortedFunc(maps.Keys(all), order) {
			visit(t, all[t])
		}
	}
	return []row{
		{
			name: "accelerator_container_memory_used_bytes", help: "Device memory that a container uses. All users outside pods are one series, with empty labels. Absent if the driver does not tell.",
			labels: labels,
			device: func(d *device, emit emit) {
				each(d, func(t tenant, s *share) {
					if s.memory.Known {
						emit(float64(s.memory.Value), t.namespace, t.pod, t.uid, t.container)
					}
				})
			},
		},
		{
			name: "accelerator_container_engine_seconds_total", help: "How long an engine of the device has worked for a container, as of the last look. All users outside pods are one series, with empty labels.",
			counter: true, labels: append(slices.Clone(labels), "engine"),
			device: func(d *device, emit emit) {
				each(d, func(t tenant, s *share) {
					for _, engine := range slices.Sorted(maps.Keys(s.engines)) {
						emit(s.engines[engine], t.namespace, t.pod, t.uid, t.container, engine)
					}
				})
			},
		},
	}
}
