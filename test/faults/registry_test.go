package faults

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
)

// Test18_Registry: the registry with the prebuilt driver is away, slow, forbids, breaks, lies, and has what nobody
// signed.
func Test18_Registry(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	r, err := image.Serve(0)
	c.must(err)
	t.Cleanup(r.Close)
	c.store(stage.Version)
	c.must(c.s.Prebuilt(t.Context(), c.g, r, false))
	c.sh(
		`for k in ours theirs; do openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out /etc/acceld/$k.pem 2>/dev/null; openssl pkey -in /etc/acceld/$k.pem -pubout -out /etc/acceld/$k.pub; done`)
	t.Logf("%s", c.slow("acceld driver build --push --sign-key /etc/acceld/ours.pem qemu-edu 2>/dev/null"))

	r.Behave(image.Trouble{Cut: true})
	c.start()
	c.await("in the store, registry away -> usable", soon, healthy(1))
	if asked := r.Requests(); len(asked) != 0 {
		t.Errorf("a driver in the store was asked for: %q", asked)
	}

	const empty = "rmmod edu 2>/dev/null || true; rm -rf /var/lib/acceld"
	blobs := func(q *http.Request) bool { return strings.Contains(q.URL.Path, "/blobs/") }
	for _, w := range []struct {
		what    string
		trouble image.Trouble
		keys    string
		want    accel.Reason
	}{
		{"away", image.Trouble{Cut: true}, "", accel.RegistryUnreachable},
		{"500", image.Trouble{Status: http.StatusInternalServerError}, "", accel.RegistryUnreachable},
		{"401", image.Trouble{Status: http.StatusUnauthorized}, "", accel.RegistryDenied},
		{"404", image.Trouble{Status: http.StatusNotFound}, "", accel.ArtifactNotFound},
		{"another content than its digest", image.Trouble{Corrupt: true, Match: blobs}, "", accel.DigestMismatch},
		{"signed by somebody else", image.Trouble{}, "keys: [/etc/acceld/theirs.pub]", accel.SignatureInvalid},
		{"slow, signed by us", image.Trouble{Delay: time.Second}, "keys: [/etc/acceld/ours.pub]", ""},
	} {
		c.halt()
		c.sh(empty)
		var lines []string
		if w.keys != "" {
			lines = append(lines, w.keys)
		}
		c.must(c.s.Prebuilt(t.Context(), c.g, r, false, lines...))
		if w.want != accel.SignatureInvalid { // which must not be followed by a build, so it has one that would work
			c.sh(`sed -i '/- type: build/,/path:/d' /etc/acceld/definitions.d/edu.yaml`)
		}
		r.Behave(w.trouble)
		c.start()
		if w.want == "" {
			c.await(w.what+" -> usable", soon, healthy(1))
			continue
		}
		c.blocked(w.what, w.want, soon)
		c.sh(`test ! -d /sys/module/edu; test "$(find /var/lib/acceld -name '*.ko*')" = ''`)
		t.Logf("  asked %d times", len(r.Requests()))
		if w.want == accel.RegistryUnreachable && w.trouble.Cut {
			r.Behave(image.Trouble{})
			c.await("  and back -> usable, by itself", soon, healthy(1))
		}
	}

	c.halt()
	c.sh(empty)
	c.must(c.s.Prebuilt(t.Context(), c.g, r, false))
	r.Behave(image.Trouble{Cut: true})
	c.start()
	if m := c.await("away, with a source to build from -> usable", building,
		healthy(1)); m.Have[stage.Kind].Driver.Source != string(accel.SourceBuild) {
		t.Errorf("the driver is from %q", m.Have[stage.Kind].Driver.Source)
	}
}
