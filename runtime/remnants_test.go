package runtime

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/host/ledger"
)

// TestRemnantsOnRecord: a recorded file that somebody edited is left to the ledger, even under another name of its
// directory. Without a record it is recognized by its content.
func TestRemnantsOnRecord(t *testing.T) {
	b := newBed(t, t.TempDir())
	for _, dir := range []string{"/run", "/var"} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../run", b.path("/var/run")); err != nil {
		t.Fatal(err)
	}
	b.apply()
	b.write(specFile, string(read(t, b.path(specFile)))+"\n")
	if found, p := b.r.Remnants(false); p != nil || len(found) > 0 {
		t.Errorf("with the record: %q, %v", found, p)
	}
	if _, err := os.Stat(b.path(specFile)); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"/var/lib/acceld", "/run/acceld"} {
		if err := os.RemoveAll(b.path(dir)); err != nil {
			t.Fatal(err)
		}
	}
	b.restart("", "cri-o")
	found, p := b.r.Remnants(false)
	if p != nil || !slices.ContainsFunc(found, func(f string) bool {
		return strings.HasSuffix(f, "qemu.org-edu.json")
	}) {
		t.Errorf("without the record: %q, %v", found, p)
	}
}

// TestRemnantsRestored: a file that was there before acceld is restored and stays, even if it looks like acceld's own,
// and also if the purge is killed after it has restored the files.
func TestRemnantsRestored(t *testing.T) {
	const file = "/etc/crio/crio.conf.d/60-acceld.conf"
	const before = "# Written by acceld, and kept by the administrator's own tool\n[crio.runtime]\ncdi_spec_dirs = [\"/etc/cdi\"]\n"
	b := newBed(t, t.TempDir())
	b.write(file, before)
	if p := b.r.write(file, []byte("# Written by acceld\n"), 0o644); p != nil {
		t.Fatal(p)
	}
	if _, err := b.r.ledger.Undo(ledger.UndoOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, killed := range []bool{false, true} {
		if killed {
			b.restart("", "cri-o")
		}
		found, p := b.r.Remnants(false)
		if p != nil || len(found) > 0 || string(read(t, b.path(file))) != before {
			t.Errorf("killed: %t: removed %q, %v", killed, found, p)
		}
	}
}
