package bed

import (
	"errors"
	"testing"
	"time"
)

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

// TestHopeless: only a kernel that reports a lost timer, or that falls silent before it has a root, is given up.
func TestHopeless(t *testing.T) {
	const (
		root  = "[    3.2] EXT4-fs (vda): mounted filesystem with ordered data mode. Quota mode: none.\n"
		stall = root + "[   22.6] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n"
	)
	for _, c := range []struct {
		console string
		quiet   time.Duration
		want    error
	}{
		{"", time.Second, nil},
		{"", 2 * silence, errStopped},
		{root, 2 * silence, nil},
		{stall, time.Second, nil},
		{stall + "[   22.6] rcu: \tPossible timer handling issue on cpu=1 timer-softirq=5\n", 0, errTimerLost},
	} {
		if got := hopeless(c.console, c.quiet); !errors.Is(got, c.want) {
			t.Errorf("%q, silent for %s: %v, not %v", c.console, c.quiet, got, c.want)
		}
	}
}
