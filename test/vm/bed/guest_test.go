package bed

import "testing"

// TestRootless: a kernel that has mounted its root is never taken for one that has stopped before.
func TestRootless(t *testing.T) {
	for console, want := range map[string]bool{
		"": true,
		"[    2.6] Run /init as init process\n[    3.07] random: crng init done\n":                              true,
		"[    3.2] random: crng init done\n[    3.69] EXT4-fs (vda): mounted filesystem with ordered data mode": false,
		"[    3.7] EXT4-fs (vdb): mounted filesystem without journal\n":                                         true,
	} {
		if got := rootless(console); got != want {
			t.Errorf("%q: %t", console, got)
		}
	}
}
