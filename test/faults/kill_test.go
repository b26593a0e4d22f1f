package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// lasting are the calls that change something which outlives the process: files take their name with one of them, and
// modules come and go. Whatever an agent does is between two of these, so they are the lines on which it can be killed.
const lasting = "rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,mkdir,mkdirat,mknod,mknodat,init_module,finit_module,delete_module"

// blank takes back what an agent did, but for the driver in the store.
const blank = `rm -rf /var/lib/acceld/[!k]* /run/acceld /var/run/cdi /usr/local/lib/acceld /usr/share/containers/oci/hooks.d/50-acceld.json
rmmod edu 2>/dev/null || true; : > /sys/kernel/tracing/trace 2>/dev/null || true`

// traced runs the agent under strace until it is ready, or until strace has killed it on entering the n-th of the calls, and
// returns the calls.
const traced = `inject=; if [ "$2" != 0 ]; then inject="-e inject=$1:signal=KILL:when=$2"; fi
timeout 60 strace -f -qq -o /tmp/trace -e signal=none -e trace=$1 $inject acceld run >/tmp/agent 2>&1 &
strace=$!
while kill -0 $strace 2>/dev/null; do
	if curl -fsS -m 2 http://127.0.0.1:9480/healthz >/dev/null 2>&1; then pkill -KILL -x acceld; fi
	sleep 0.1
done
wait $strace 2>/dev/null || true
while pkill -KILL -x acceld; do sleep 0.1; done
cat /tmp/trace`

// left is every path that an agent has made.
const left = `find /var/lib/acceld /run/acceld /var/run/cdi /usr/local/lib/acceld /usr/share/containers/oci/hooks.d 2>/dev/null | grep -v '/run/acceld/acceld.sock' | sort`

// Test01_KilledAtEveryStep: the agent is killed, twice, on each line that leaves something behind. The next one converges.
func Test01_KilledAtEveryStep(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.store(stage.Version)
	c.sh("systemctl mask --now acceld.socket 2>/dev/null")
	loads := c.countLoads()
	c.sh(blank)
	calls := strings.Split(c.slow(traced, lasting, "0"), "\n")
	want := c.sh(left)
	t.Logf("%d calls that last", len(calls))
	for n, call := range calls {
		c.sh(blank)
		c.slow(traced, lasting, fmt.Sprint(n+1))
		c.slow(traced, lasting, fmt.Sprint(n+1))
		c.sh("systemctl start acceld.service")
		c.reaches(fmt.Sprintf("killed twice at %s", call[strings.Index(call, " ")+1:]), accel.Ready, soon)
		c.sh("systemctl stop acceld.service")
		if got := c.sh(left); got != want {
			t.Errorf("after a kill at %s there is\n%s\nwant\n%s", call, got, want)
		}
		if n := loads(); n > 1 {
			t.Errorf("%d calls to load or unload after a kill at %s", n, call)
		}
	}
}
