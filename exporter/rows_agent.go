package exporter

import (
	"runtime"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// agentRows are the metrics about the agent and the kinds.
func agentRows() []row {
	return slices.Concat(identityRows(), stateRows(), workRows(), upgradeRows(), tallyRows(), kubeRows())
}

func identityRows() []row {
	return []row{
		{
			name: "acceld_build_info", help: "The running agent; the value is 1.",
			labels:  []string{"version", "goversion"},
			collect: func(v view, emit emit) { emit(1, v.Agent.Version, runtime.Version()) },
		},
		{
			name: "acceld_start_time_seconds", help: "When the agent started, since the epoch.",
			collect: func(v view, emit emit) { stamp(emit, v.Agent.Started) },
		},
		{
			name:    "acceld_snapshot_timestamp_seconds",
			help:    "When the snapshot that this page shows was made, since the epoch.",
			collect: func(v view, emit emit) { stamp(emit, v.Taken) },
		},
		{
			name:    "acceld_unreadable_facts",
			help:    "Facts about the host that could not be read; /v1/machine names them.",
			collect: func(v view, emit emit) { emit(float64(len(v.Facts.Problems))) },
		},
	}
}

func stateRows() []row {
	return []row{
		{
			name:   "acceld_kind_state",
			help:   "The state of a kind of accelerator: 1 for the one it is in, 0 for the others.",
			labels: []string{"state"},
			kind: func(v view, k string, emit emit) {
				for _, s := range accel.States() {
					emit(truth(v.Status[k].State == s), string(s))
				}
			},
		},
		{
			name: "acceld_kind_state_since_timestamp_seconds",
			help: "When the kind entered its state, since the epoch.",
			kind: func(v view, k string, emit emit) {
				stamp(emit, v.Status[k].Since)
			},
		},
		{
			name: "acceld_blocked", help: "1 for a kind that cannot leave its state, by reason.",
			labels: []string{"reason"},
			kind: func(v view, k string, emit emit) {
				if b := v.Status[k].Blocked; b != nil {
					emit(1, string(b.Reason))
				}
			},
		},
		{
			name: "acceld_blocked_since_timestamp_seconds",
			help: "When the step that blocks the kind first failed, since the epoch.",
			kind: func(v view, k string, emit emit) {
				if b := v.Status[k].Blocked; b != nil {
					stamp(emit, b.Since)
				}
			},
		},
		{
			name: "acceld_state_seconds", help: "How long each state on the way lasted the last time it was passed.",
			labels: []string{"state"},
			kind: func(v view, k string, emit emit) {
				for s, took := range v.Status[k].Took {
					emit(took.Seconds(), string(s))
				}
			},
		},
	}
}

func upgradeRows() []row {
	return []row{
		{
			name:   "acceld_upgrade",
			help:   "1 for a kind whose driver is to be replaced by another one, by phase and by the reason that it waits for, empty when it goes on.",
			labels: []string{"phase", "reason"},
			kind: func(v view, k string, emit emit) {
				if u := v.Have[k].Driver.Upgrade; u != nil {
					reason := ""
					if u.Failure != nil {
						reason = string(u.Failure.Reason)
					}
					emit(1, string(u.Phase), reason)
				}
			},
		},
		{
			name:   "acceld_next_kernel_ready",
			help:   "1 when the driver of a kind is ready for a newer kernel that is installed, 0 when a reboot into it would find none.",
			labels: []string{"kernel"},
			kind: func(v view, k string, emit emit) {
				for release, next := range v.Have[k].Driver.Next {
					emit(truth(next.Problem == nil), release)
				}
			},
		},
		{
			name:   "acceld_agent_part_problem",
			help:   "1 for each part of the agent that does not work now, such as a port that another program has, with its reason.",
			labels: []string{"part", "reason"},
			collect: func(v view, emit emit) {
				for _, p := range v.Agent.Problems {
					emit(1, p.Part, string(p.Reason))
				}
			},
		},
		{
			name:   "acceld_node_maintenance",
			help:   "1 for each condition of the node by which somebody else says that they work on it, or will.",
			labels: []string{"condition"},
			collect: func(v view, emit emit) {
				for _, m := range v.Facts.Maintenance {
					emit(1, string(m.Condition))
				}
			},
		},
		{
			name:    "acceld_configuration_valid",
			help:    "1 when the configuration on the disk is in force, 0 when it cannot be used and the one before stays in force, or waits for the next start of the agent.",
			collect: func(v view, emit emit) { emit(truth(v.Want.Problem == nil)) },
		},
	}
}

func tallyRows() []row {
	return []row{
		{
			name: "acceld_state_transitions_total", help: "Changes of state since the agent started.", counter: true,
			labels: []string{"kind", "from", "to"},
			collect: func(v view, emit emit) {
				for t, n := range v.tally.transitions {
					emit(n, t.kind, string(t.from), string(t.to))
				}
			},
		},
		{
			name: "acceld_state_seconds_total", help: "Time spent in states that were left, since the agent started.",
			counter: true, labels: []string{"kind", "state"},
			collect: func(v view, emit emit) {
				for l, n := range v.tally.seconds {
					emit(n, l.kind, string(l.state))
				}
			},
		},
		{
			name: "acceld_step_failures_total", help: "Failed steps since the agent started, by reason.", counter: true,
			labels: []string{"kind", "step", "reason"},
			collect: func(v view, emit emit) {
				for f, n := range v.tally.failures {
					emit(n, f.kind, string(f.step), string(f.reason))
				}
			},
		},
	}
}

func kubeRows() []row {
	return []row{
		{
			name: "acceld_registrations_total",
			help: "Successful registrations with the kubelet since the agent started.", counter: true,
			kind: func(v view, k string, emit emit) {
				if served(v, k) {
					emit(float64(v.Have[k].Plugin.Registrations))
				}
			},
		},
		{
			name: "acceld_allocatable",
			help: "Devices that the kubelet itself says can be allocated; absent until it has said.",
			kind: func(v view, k string, emit emit) {
				if n := v.Have[k].Plugin.Allocatable; n.Known && served(v, k) {
					emit(float64(n.Value))
				}
			},
		},
		{
			name: "acceld_labels_synced",
			help: "1 when the API server holds the node's labels as rendered; absent without credentials for it.",
			collect: func(v view, emit emit) {
				if !v.Want.Labels {
					return
				}
				synced := true
				for _, k := range v.kinds() {
					synced = synced && (v.Status[k].State == accel.Absent || v.Have[k].Monitoring.Labelled)
				}
				emit(truth(synced))
			},
		},
		{
			name: "acceld_collector_last_success_timestamp_seconds",
			help: "When metrics and health of a kind were last completely read, since the epoch.",
			kind: func(v view, k string, emit emit) {
				stamp(emit, v.Have[k].Monitoring.Collected)
			},
		},
		{
			name:    "acceld_attribution_last_success_timestamp_seconds",
			help:    "When the kubelet last said which containers hold accelerators, since the epoch; absent until it has.",
			collect: func(v view, emit emit) { stamp(emit, v.lastSeen) },
		},
		{
			name: "acceld_driver_proven_timestamp_seconds",
			help: "When every device of a kind last passed its check, since the epoch; absent while not proven.",
			kind: func(v view, k string, emit emit) {
				stamp(emit, v.Have[k].Driver.Proven)
			},
		},
		{
			name: "acceld_driver_unchecked",
			help: "1 for a kind whose driver serves and whose definition has no check: nothing proves that its devices compute.",
			kind: func(v view, k string, emit emit) {
				emit(truth(v.Have[k].Driver.Unchecked))
			},
		},
	}
}

// served reports whether a kind is reported to the kubelet.
func served(v view, k string) bool { return v.Want.Kubernetes && len(v.Have[k].Accelerators) > 0 }

// stamp emits t, unless it is zero.
func stamp(emit emit, t time.Time, labels ...string) {
	if !t.IsZero() {
		emit(seconds(t), labels...)
	}
}
