package probe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// dividesHalves answers requests to divide a device: into halves, or refuses quarters.
const dividesHalves = `(while kill -0 $$ 2>/dev/null && sleep 0.2; do echo '{}'; done) &
while read -r line; do case "$line" in
*quarter*) echo '{"divided":{"device":"0000:01:00.0","parts":{"quarter":4},"problem":"no such profile"}}' ;;
*half*) echo '{"snapshot":{"devices":[{"id":"0000:01:00.0","model":"NPU 9","partitions":[{"name":"p0","profile":"half","nodes":["/dev/null"]},{"name":"p1","profile":"half","nodes":["/dev/null"]}]},{"id":"0000:02:00.0","model":"NPU 9"}]}}'
  echo '{"divided":{"device":"0000:01:00.0","parts":{"half":2}}}' ;;
*divide*) ` + both + `  echo '{"divided":{"device":"0000:01:00.0"}}' ;;
esac; done
`

// TestDivisionOnDemand: a device is divided when somebody asks, and what the program says then is known at once.
func TestDivisionOnDemand(t *testing.T) {
	b := newBench(t, hello+both+dividesHalves)
	b.def.Partitions = &accel.Partitions{Told: true, Make: &accel.Making{Program: true}}
	if err := b.k.Divide(t.Context(), "other-kind", one, nil); err == nil {
		t.Error("without a program")
	}
	b.until("known", model)
	parts := func(want map[string]int) {
		t.Helper()
		got, err := b.k.Parts(b.def.Kind, one)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	parts(map[string]int{})
	if err := b.k.Divide(t.Context(), b.def.Kind, one, map[string]int{"half": 2}); err != nil {
		t.Error(err)
	}
	parts(map[string]int{"half": 2})
	if err := b.k.Divide(t.Context(), b.def.Kind, one, map[string]int{"quarter": 4}); err == nil ||
		!strings.Contains(err.Error(), "no such profile") {
		t.Error(err)
	}
	if err := b.k.Divide(t.Context(), b.def.Kind, one, nil); err != nil {
		t.Error(err)
	}
	parts(map[string]int{})
	p := b.k.known(b.def.Kind)
	p.divisions.of[one] = &division{busy: true, answer: make(chan string, 1)}
	if err := b.k.Divide(t.Context(), b.def.Kind, one, nil); err == nil || !strings.Contains(err.Error(), "already") {
		t.Error(err)
	}
	delete(p.divisions.of, one)
	b.stop()
	if _, err := b.k.Parts(b.def.Kind, two+"x"); err == nil {
		t.Error("of a device that the program does not know")
	}
}
