package cli

import "testing"

// What comes and goes with every pod wakes nobody; what a step reads or wrote does.
func TestRoutine(t *testing.T) {
	for name, want := range map[string]bool{
		"/var/lib/kubelet/allocated_pods_state":                       true,
		"/var/lib/kubelet/.dra_manager_state1234":                     true,
		"/var/lib/kubelet/config.yaml":                                false,
		"/var/lib/kubelet/kubeadm-flags.env":                          false,
		"/var/lib/kubelet/device-plugins":                             false,
		"/var/lib/kubelet":                                            false,
		"/var/run/cdi/acceld-claim-qemu-edu.acceld.dev-8f14e45f.json": true,
		"/var/run/cdi/.acceld-0123456789abcdef.tmp":                   true,
		"/var/run/cdi/qemu.org-edu.json":                              false,
		"/var/run/cdi":                                                false,
		"/dev/edu0":                                                   false,
		"/lib/modules/6.1.0-47-amd64/modules.dep":                     false,
	} {
		if got := routine(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
