package artifact

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
)

// TestMirrorBreaksOff: nothing that a mirror sent before it failed ends up among the files from the registry.
func TestMirrorBreaksOff(t *testing.T) {
	b := newWorkbench(t)
	c, _ := b.large()
	inner := newRegistry()
	breaking := &meddling{Handler: inner}
	cut := func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter {
		return &piecemeal{ResponseWriter: w, cut: 1 << 20}
	}
	breaking.with.Store(&cut)
	s := accel.Source{Image: serve(t, inner) + "/edu", Mirrors: []string{serve(t, breaking)}}
	if _, problem := b.c.Push(t.Context(), s, this(), c, b.empty(), PushOptions{}); problem != nil {
		t.Fatal(problem)
	}
	dir := b.empty()
	pulled, problem := b.c.Pull(t.Context(), s, this(), dir)
	if problem != nil || !strings.HasPrefix(pulled.Reference, s.Image) {
		t.Fatalf("%+v %v", pulled, problem)
	}
	if diff := cmp.Diff([]string{"edu.ko", "firmware/a/edu.bin"}, slices.Sorted(maps.Keys(b.tree(dir)))); diff != "" {
		t.Error(diff)
	}
}

// TestWorst: of several failures, the most important one is the reason, in whatever order they came. The message has
// all of them.
func TestWorst(t *testing.T) {
	for _, c := range []struct{ one, other, want accel.Reason }{
		{accel.ArtifactNotFound, accel.ArtifactNotFound, accel.ArtifactNotFound},
		{accel.ArtifactNotFound, accel.RegistryUnreachable, accel.RegistryUnreachable},
		{accel.KernelMismatch, accel.RegistryUnreachable, accel.RegistryUnreachable},
		{accel.ArchMismatch, accel.RegistryDenied, accel.RegistryDenied},
		{accel.RegistryUnreachable, accel.RegistryDenied, accel.RegistryDenied},
		{accel.RegistryUnreachable, accel.DigestMismatch, accel.DigestMismatch},
		{accel.RegistryDenied, accel.SignatureInvalid, accel.SignatureInvalid},
		{accel.ArtifactNotFound, accel.ArtifactInvalid, accel.ArtifactInvalid},
	} {
		one, other := accel.Problemf(c.one, "the mirror failed"), accel.Problemf(c.other, "the registry failed")
		for _, all := range [][]*accel.Problem{{one, other}, {other, one}} {
			got := transfer.Worst(all)
			if got.Reason != c.want || !strings.Contains(got.Message, one.Message) ||
				!strings.Contains(got.Message, other.Message) {
				t.Errorf("%s and %s: %v, want %s", c.one, c.other, got, c.want)
			}
		}
	}
}

// TestTagIsNamed: a message names the tag that was tried, even if the tag's text also occurs elsewhere in it.
func TestTagIsNamed(t *testing.T) {
	b := newWorkbench(t)
	s := accel.Source{Type: accel.SourceOCI, Image: serve(t, newRegistry()) + "/x"}
	b.image(s, "module", map[string]string{"etc/passwd": "root"})
	s.Image += ":module"
	_, problem := b.c.Pull(t.Context(), s, this(), b.empty())
	if problem == nil || !strings.Contains(problem.Message, "module has no module in ") {
		t.Error(problem)
	}
}
