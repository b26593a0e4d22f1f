package faults

import (
	"regexp"
	"slices"
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

// traced runs the agent under strace until it is ready and returns the calls of $1. With $2 those that name the path
// $2, and with $3 it is killed on entering the first of them. As under the unit, /usr is read-only.
const traced = `calls=$1 path=$2 kill=$3
set -- -f -qq -o /tmp/trace -e signal=none -e "trace=$calls"
if [ -n "$path" ]; then set -- "$@" -P "$path"; fi
if [ -n "$kill" ]; then set -- "$@" -e "inject=$calls:signal=KILL:when=1"; fi
timeout 300 unshare -m sh -c 'mount --bind /usr /usr; mount -o remount,bind,ro /usr; exec strace "$@"' - "$@" acceld run >/tmp/agent 2>&1 &
strace=$!
while kill -0 $strace 2>/dev/null; do
	if curl -s -m 5 http://127.0.0.1:9480/metrics | grep -q 'acceld_kind_state.*state="ready"} 1'; then touch /tmp/ready; pkill -KILL -x acceld; fi
	sleep 0.2
done
wait $strace 2>/dev/null || true
while pkill -KILL -x acceld; do sleep 0.1; done
cat /tmp/trace`

// left is every path that an agent has made.
const left = `find /var/lib/acceld /run/acceld /var/run/cdi /usr/local/lib/acceld /usr/share/containers/oci/hooks.d 2>/dev/null | grep -v '/run/acceld/acceld.sock' | sort`

// step is a line of the agent that leaves something behind: a call, and the path that it is about.
type step struct{ call, path string }

// steps are those of a trace, each once. A path of a temporary name stands for the one that the next run chooses.
func steps(trace string) (out []step) {
	for line := range strings.Lines(trace) {
		call, _, ok := strings.Cut(strings.TrimLeft(line, " 0123456789"), "(")
		if !ok || strings.Contains(line, "ENOENT") {
			continue
		}
		s := step{call: call}
		if paths := regexp.MustCompile(`"(/[^"]*)"`).FindAllStringSubmatch(line, -1); len(paths) > 0 {
			s.path = paths[len(paths)-1][1]
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Test01_KilledAtEveryStep: the agent is killed, twice, on each line that leaves something behind. The next one
// converges.
func Test01_KilledAtEveryStep(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.store(stage.Version)
	c.sh("systemctl mask --now acceld.socket 2>/dev/null")
	loads := c.countLoads()
	c.sh(blank)
	all := steps(c.slow(traced, lasting, "", ""))
	if c.sh("if test -e /tmp/ready; then echo ready; fi") == "" {
		t.Fatalf("the agent is not ready under strace; it left %d steps", len(all))
	}
	c.sh("systemctl start acceld.service")
	c.reaches("not killed", accel.Ready, soon)
	c.sh("systemctl stop acceld.service")
	want := c.sh(left)
	killed := 0
	for _, s := range all {
		name := strings.TrimSpace(s.call + " " + s.path)
		c.sh(blank + "; rm -f /tmp/ready")
		c.slow(traced, s.call, s.path, "kill")
		if c.sh("if test -e /tmp/ready; then echo ready; fi") != "" {
			continue // the call named another temporary file this time: the next step stands for it
		}
		killed++
		c.slow(traced, s.call, s.path, "kill")
		c.sh("systemctl start acceld.service")
		c.reaches("killed twice at "+name, accel.Ready, soon)
		c.sh("systemctl stop acceld.service")
		if got := c.sh(left); got != want {
			t.Errorf("after a kill at %s there is\n%s\nwant\n%s", name, got, want)
		}
		if n := loads(); n > 1 {
			t.Errorf("%d calls to load or unload after a kill at %s", n, name)
		}
	}
	t.Logf("killed at %d of %d steps", killed, len(all))
	if 3*killed < len(all) || len(all) < 12 { // a third of the steps may be of temporary files
		t.Errorf("killed at %d of %d steps: too few to prove anything", killed, len(all))
	}
}
