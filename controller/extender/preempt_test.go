package extender

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/test/fleet"
)

// TestPreempt: pods are evicted only where that makes room on a card.
func TestPreempt(t *testing.T) {
	big, small := fleet.Pod("big", "n1", "card0", fleet.Amounts{"shares": "1", "memory": "7G"}),
		fleet.Pod("small", "n1", "card1", fleet.Amounts{"shares": "1", "memory": "4G"})
	l := leading(t, big, small)
	l.list(twoCards())
	cpu := fleet.Pod("cpu", "", "")
	cpu.Spec.Containers = []corev1.Container{{Name: "c"}}
	for _, c := range []struct {
		name    string
		pod     *corev1.Pod
		victims []*corev1.Pod
		want    bool
	}{
		{"nobody ends", five("p"), nil, false},
		{"the one whose card is large enough then", five("p"), []*corev1.Pod{big}, true},
		{"the other one too", five("p"), []*corev1.Pod{small}, true},
		{"nobody has to", fleet.Pod("p", "", "", fleet.Amounts{"shares": "1", "memory": "3G"}), nil, true},
		{
			"not even then", fleet.Pod("p", "", "", fleet.Amounts{"shares": "2", "memory": "12G"}),
			[]*corev1.Pod{big},
			false,
		},
		{
			"both", fleet.Pod("p", "", "", fleet.Amounts{"shares": "2", "memory": "12G"}),
			[]*corev1.Pod{big, small},
			true,
		},
		{"somebody without a card", five("p"), []*corev1.Pod{cpu}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &victims{NumPDBViolations: 1}
			for _, p := range c.victims {
				v.Pods = append(v.Pods, metaPod{string(p.UID)})
			}
			status, body := l.post("preempt",
				map[string]any{"Pod": c.pod, "NodeNameToMetaVictims": map[string]*victims{"n1": v, "unknown": v}})
			var got preemptionResult
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
				t.Fatalf("%d %s: %v", status, body, err)
			}
			want := map[string]*victims{}
			if c.want {
				want["n1"] = v
			}
			if diff := cmp.Diff(want, got.NodeNameToMetaVictims); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if l.passes(five("p")) {
		t.Error("asking has ended somebody")
	}
	for body, want := range map[string]int{
		`{"NodeNameToMetaVictims":{}}`:      http.StatusBadRequest,
		`{"Pod":{},"NodeNameToVictims":{}}`: http.StatusBadRequest, `[]`: http.StatusBadRequest,
	} {
		if status, answer := l.post("preempt", json.RawMessage(body)); status != want ||
			!strings.Contains(answer, `"Error":"`) {
			t.Errorf("%s: status %d, want %d: %s", body, status, want, answer)
		}
	}
	l.term.Store(nil)
	if status, _ := l.post("preempt",
		map[string]any{
			"Pod":                   five("p"),
			"NodeNameToMetaVictims": map[string]*victims{},
		}); status != http.StatusServiceUnavailable {
		t.Errorf("not the leader: status %d", status)
	}
}
