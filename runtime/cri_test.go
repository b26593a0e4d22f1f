package runtime

import (
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestWhomToAsk: podman has no daemon, and docker has no CRI, so neither is asked for pods.
func TestWhomToAsk(t *testing.T) {
	cl := &client{live: func() bool { return true }}
	for name, want := range map[string]bool{"cri-o": true, "containerd": true, "docker": true, "podman": false} {
		if got := cl.running(accel.ContainerEngine{Name: name, PID: 7}); got != want {
			t.Errorf("%s has a daemon: %t", name, got)
		}
	}
	for name, want := range map[string]bool{"cri-o": true, "containerd": true, "docker": false} {
		e := accel.ContainerEngine{Name: name} // without a socket, so that asking fails
		if _, err := cl.pods(t.Context(), e); (err != nil) != want {
			t.Errorf("%s is asked for its pods: %v", name, err)
		}
		if got := cl.creating(t.Context(), e); got != want {
			t.Errorf("%s is asked for its containers: %t", name, got)
		}
	}
}
