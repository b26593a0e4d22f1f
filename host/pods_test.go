package host

import (
	"errors"
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPods: the pods that have containers are found with both cgroup drivers of the kubelet, below any root, and
// without control groups of pods.
func TestPods(t *testing.T) {
	const uid, static = "0b8f7b1e-6c1d-4f3e-9a53-0d5b8f0c2e11", "97c1b0e6a2f34d58bb1e7f6c0d9a8e42"
	under := "0b8f7b1e_6c1d_4f3e_9a53_0d5b8f0c2e11"
	for name, tc := range map[string]struct{ dirs, want []string }{
		"systemd": {
			[]string{
				"/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/x.scope",
				"/sys/fs/cgroup/kubepods.slice/kubepods-pod" + static + ".slice",
				"/sys/fs/cgroup/system.slice/podman.service", "/var/lib/kubelet/pods/" + uid, "/var/lib/kubelet/pods/done",
			},
			[]string{under, static},
		},
		"cgroupfs": {
			[]string{"/sys/fs/cgroup/kubepods/besteffort/pod" + uid + "/0123", "/sys/fs/cgroup/podx"}, []string{under},
		},
		"version 1": {
			[]string{"/sys/fs/cgroup/memory/kubepods/pod" + uid, "/sys/fs/cgroup/cpu/kubepods/pod" + uid}, []string{under},
		},
		"another root": {
			[]string{
				"/sys/fs/cgroup/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/" +
					"kubelet-kubepods-burstable-pod" + under + ".slice",
			},
			[]string{under},
		},
		"no pod runs":        {[]string{"/sys/fs/cgroup/kubepods/burstable", "/var/lib/kubelet/pods/" + uid}, nil},
		"no groups of pods":  {[]string{"/sys/fs/cgroup/system.slice", "/var/lib/kubelet/pods/" + uid}, []string{under}},
		"no kubelet, either": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := New(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range tc.dirs {
				if err := h.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			pods, err := h.Processes().Pods("/var/lib/kubelet")
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(pods))); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if pods.Has(uid) != slices.Contains(tc.want, under) || pods.Has("done") {
				t.Errorf("by UID: %v", pods)
			}
		})
	}
}

// TestPodsUnknown: a directory that cannot be read is no machine without pods.
func TestPodsUnknown(t *testing.T) {
	h, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/sys/fs/cgroup", "/var/lib/kubelet/pods"} {
		if err := errors.Join(h.MkdirAll(path.Dir(name), 0o755), h.WriteFile(name, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if pods, err := h.Processes().Pods("/var/lib/kubelet"); err == nil {
			t.Errorf("%q: %v", name, pods)
		}
		if err := h.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}
