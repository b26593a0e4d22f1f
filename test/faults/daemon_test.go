package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// Test32: the daemon of a driver on a host without systemd: it outlives the agent, which starts it again when it has
// ended, and goes before its driver does; what it says is in a file; a purge leaves nothing of it.
func Test32_NoSystemd(t *testing.T) {
	c := light(t, bed.Options{Accelerators: 2})
	for _, v := range []string{stage.Version, stage.Version2} {
		_, err := c.s.Root(c.Context(), c.g, "edu-root:"+v, v, v)
		c.must(err)
	}
	image := c.g.Image("edu-root:{{.DriverVersion}}")
	attended := func(version, args string) {
		c.Helper()
		c.must(c.s.Attended(c.Context(), c.g, image, version, args))
	}
	serving := func(what, version string) {
		c.Helper()
		c.await(what+" -> "+version+" serves", building, func(m accel.Machine) bool {
			return m.Status[stage.Kind].State == accel.Ready && m.Have[stage.Kind].Driver.Version == version
		})
	}
	const unit = "acceld-companion-qemu-edu.stay.service"
	// runs checks that the daemon is of the version that serves and has both devices open, and returns its process.
	runs := func(version string) string {
		c.Helper()
		return strings.TrimSpace(c.sh(`pid=$(cat "/sys/fs/cgroup/system.slice/$1/cgroup.procs")
test "$(readlink /proc/$pid/exe)" = "$(readlink -f /run/acceld/driver/qemu-edu)/usr/bin/edu-stayd"
test "$(cat /run/edu-stay/ready)" = "$2"; test "$(ls -l /proc/$pid/fd | grep -c /dev/edu)" = 2
grep -q '^NoNewPrivs:.1$' /proc/$pid/status; echo $pid`, unit, version))
	}
	c.sh("test ! -d /run/systemd/system; test ! -e /sys/fs/cgroup/system.slice")
	before := c.sh("find /run /sys/fs/cgroup -name '*acceld*' -o -name '*edu*' -o -name system.slice | sort")

	attended(stage.Version, "")
	c.start()
	serving("started", stage.Version)
	first := runs(stage.Version)
	c.must(c.agent.Signal("KILL"))
	_, _ = c.agent.Wait(c.within(soon))
	c.agent = nil
	c.start()
	serving("the agent was killed", stage.Version)
	if again := runs(stage.Version); again != first {
		c.Errorf("process %s before the agent was killed, %s after", first, again)
	}
	c.sh("kill -9 $1", first)
	c.until("the daemon was killed, and runs again", `test -n "$(cat /sys/fs/cgroup/system.slice/$1/cgroup.procs)" && test -e /run/edu-stay/ready`, unit)
	serving("the daemon was killed", stage.Version)
	runs(stage.Version)

	attended(stage.Version2, "")
	serving("another version", stage.Version2)
	runs(stage.Version2)

	attended(stage.Version2, "broken")
	f := c.blocked("a daemon that ends at once", accel.CompanionDown, 2*soon)
	if log := "/run/acceld/daemons/" + unit + ".log"; !strings.Contains(f.Message, log) ||
		!strings.Contains(c.sh(`cat "$1"`, log), "told to be broken") {
		c.Errorf("it is not said where its output is: %s", f.Message)
	}
	attended(stage.Version2, "")
	serving("it is mended", stage.Version2)
	runs(stage.Version2)

	c.halt()
	begin := time.Now()
	c.sh(`acceld driver unload qemu-edu; test ! -e /sys/module/edu; test ! -e /run/edu-stay
test ! -e "/sys/fs/cgroup/system.slice/$1"; test ! -e "/run/acceld/daemons/$1"`, unit)
	c.Logf("%-70s %6.2f s", "unloaded, with its daemon", time.Since(begin).Seconds())
	c.sh("acceld driver ensure qemu-edu")
	runs(stage.Version2)
	c.sh("acceld purge")
	after := c.sh("find /run /sys/fs/cgroup -name '*acceld*' -o -name '*edu*' -o -name system.slice | sort")
	if after != before {
		c.Errorf("left:\n%s\nbefore:\n%s", after, before)
	}
}
