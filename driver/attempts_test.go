package driver

import (
	"testing"

	"github.com/acceld/acceld/driver/store"
)

// TestOrphanedAttempts: a load's process was killed while the kernel carried on. The next start marks the attempt as
// ended; otherwise a later boot would count it against the driver.
func TestOrphanedAttempts(t *testing.T) {
	const name = "/var/lib/acceld/attempts/abc.json"
	for _, c := range []struct {
		name, marker string
		prepare      func(*testMachine)
		want         store.Attempt
	}{
		{"over", `{"open":true,"bootID":"boot-1"}`, nil, store.Attempt{}},
		{
			"one unclean before", `{"open":true,"bootID":"boot-1","unclean":1}`, nil,
			store.Attempt{BootID: "boot-1", Unclean: 1},
		},
		{"another boot", `{"open":true,"bootID":"boot-0"}`, nil, store.Attempt{Open: true, BootID: "boot-0"}},
		{"hangs", `{"open":true,"bootID":"boot-1","hung":true}`, nil, store.Attempt{
			Open: true, BootID: "boot-1",
			Hung: true,
		}},
		{"a crash since", `{"open":true,"bootID":"boot-1"}`, func(m *testMachine) {
			m.Write("/proc/sys/kernel/tainted", "128\n")
		}, store.Attempt{Open: true, BootID: "boot-1"}},
		{"a crash before", `{"open":true,"bootID":"boot-1","taint":128}`, func(m *testMachine) {
			m.Write("/proc/sys/kernel/tainted", "128\n")
		}, store.Attempt{}},
		{"on its way in", `{"open":true,"bootID":"boot-1"}`, func(m *testMachine) {
			m.Write("/sys/module/edu/initstate", "coming\n")
		}, store.Attempt{Open: true, BootID: "boot-1"}},
		{"somebody loads", `{"open":true,"bootID":"boot-1"}`, func(m *testMachine) {
			release, problem := m.driver(Options{}).locks.Driver(m.T.Context(), "")
			if problem != nil {
				m.T.Fatal(problem)
			}
			m.T.Cleanup(release)
		}, store.Attempt{Open: true, BootID: "boot-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			if c.prepare != nil {
				c.prepare(m)
			}
			m.Write(name, c.marker)
			if got := m.driver(Options{}).attempts.Read("abc"); got != c.want {
				t.Errorf("the marker is %+v, want %+v", got, c.want)
			}
		})
	}
}
