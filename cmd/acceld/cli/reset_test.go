package cli

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/client"
	"github.com/acceld/acceld/driver"
)

// resettableHave returns a kind with the devices; the kubelet gives out n of them.
func resettableHave(n int, devices ...accel.Accelerator) accel.Have {
	have := accel.Have{Plugin: accel.PluginHave{Registered: true, Allocatable: accel.Known(n)}}
	for i, a := range devices {
		a.ID, a.Bound = "0000:0"+string(rune('1'+i))+":00.0", "edu"
		have.Accelerators = append(have.Accelerators, a)
	}
	return have
}

// TestResetReady: the device is touched only when the agent withholds it, the kubelet has taken that over, and no pod
// has the device.
func TestResetReady(t *testing.T) {
	well, out := accel.Accelerator{Health: accel.Health{State: accel.Healthy}}, beingReset()
	ill := accel.Accelerator{Health: accel.Health{State: accel.Unhealthy, Reason: accel.DeviceFault}}
	for _, c := range []struct {
		name       string
		have       accel.Have
		kubernetes bool
		want       bool
	}{
		{"still given out", resettableHave(2, well, well), true, false},
		{"ill, and the agent has not heard", resettableHave(1, ill, well), true, false},
		{"held back, and the kubelet has not heard", resettableHave(2, out, well), true, false},
		{"held back, and the kubelet has heard", resettableHave(1, out, well), true, true},
		{"without a kubelet", resettableHave(-1, out, well), false, true},
		{"not known to the agent", accel.Have{}, true, true},
	} {
		m := accel.Machine{Want: accel.Want{Kubernetes: c.kubernetes}, Have: map[string]accel.Have{"qemu-edu": c.have}}
		target := driver.ResetTarget{
			Def:    &accel.Definition{Kind: "qemu-edu"},
			Device: accel.Accelerator{ID: "0000:01:00.0"},
		}
		if got := isOut(m, target); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestResetAsksAgent: a pod that was given the device just before is found. Without an answer from the kubelet,
// nothing is touched.
func TestResetAsksAgent(t *testing.T) {
	for _, c := range []struct {
		name, told, holders string
		reason              accel.Reason
		says                string
	}{
		{"nobody has it", "Fri, 02 Jan 2026 03:04:05 GMT", "{}", "", ""},
		{
			"a pod has it", "Fri, 02 Jan 2026 03:04:05 GMT",
			`{"0000:01:00.0": [{"namespace": "ml", "pod": "train-0"}]}`,
			accel.InUse, "ml/train-0",
		},
		{
			"a pod has a part of it", "Fri, 02 Jan 2026 03:04:05 GMT",
			`{"0000:01:00.0-half-p0": [{"namespace": "ml", "pod": "train-1"}]}`, accel.InUse, "ml/train-1",
		},
		{"the kubelet has not spoken", "", "{}", accel.ProbeUnanswered, "has not reported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &reset{agent: answering(t, c.told, c.holders, accel.Machine{
				Taken: time.Now(), Want: accel.Want{Kubernetes: true},
				Have: map[string]accel.Have{"qemu-edu": resettableHave(1, beingReset(),
					accel.Accelerator{Health: accel.Health{State: accel.Healthy}})},
			}), targets: []driver.ResetTarget{{
				Def: &accel.Definition{Kind: "qemu-edu"},
				Device: accel.Accelerator{
					ID:         "0000:01:00.0",
					Partitions: []accel.Accelerator{{ID: "0000:01:00.0-half-p0", Parent: "0000:01:00.0"}},
				},
			}}}
			problem := r.ready(t.Context())
			switch {
			case problem == nil && c.reason == "":
			case problem == nil || problem.Reason != c.reason || !strings.Contains(problem.Message, c.says):
				t.Errorf("%v, want %s %q", problem, c.reason, c.says)
			}
		})
	}
}

// answering returns an agent that always gives the same answers.
func answering(t *testing.T, told, holders string, m accel.Machine) *asked {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/holders" {
			if told != "" {
				w.Header().Set("Last-Modified", told)
			}
			_, _ = w.Write([]byte(holders))
			return
		}
		_ = json.NewEncoder(w).Encode(m)
	}))
	t.Cleanup(server.Close)
	var d net.Dialer
	return &asked{Client: client.NewWith("test", func(ctx context.Context) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
	})}
}

func beingReset() accel.Accelerator {
	return accel.Accelerator{
		Health: accel.Health{State: accel.Healthy}, Withheld: &accel.Withheld{
			By:     accel.ByReset,
			Reason: accel.BeingReset,
		},
	}
}
