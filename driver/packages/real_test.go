package packages

import (
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/vm/hostpkg"
)

// TestRealDebian gets the smallest user space of a real driver from Debian 12's archive, through the mirror that apt of
// this machine uses and with the keys that it trusts.
func TestRealDebian(t *testing.T) {
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("downloads 20 MB from Debian's archive: needs ACCELD_TESTBED=1, root, apt and the network")
	}
	mirror, err := hostpkg.Mirror(t.Context(), "bookworm")
	if err != nil {
		t.Fatal(err)
	}
	const version, keys = "535.261.03-1", "/usr/share/keyrings/debian-archive-keyring.gpg"
	root := t.TempDir()
	text, err := os.ReadFile(keys)
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, path.Dir(keys)), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, keys), text, 0o644)
	}
	h, newErr := host.New(root)
	if err != nil || newErr != nil {
		t.Fatal(err, newErr)
	}
	r := Request{
		Repository: Repository{
			Format: Deb, URL: mirror, Suite: "bookworm", Components: []string{"non-free"}, Architecture: "amd64",
			Keys: []string{keys},
		},
		Cache: "/cache",
	}
	for _, name := range []string{"libcuda1", "libnvidia-ml1", "nvidia-smi", "libnvidia-ptxjitcompiler1"} {
		r.Packages = append(r.Packages, Wanted{Name: name, Version: version})
	}
	var all Fetched
	for _, dir := range []string{"/first", "/second"} {
		r.Dir = dir
		if err := h.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var problem *accel.Problem
		if all, problem = New(h, Options{}).Fetch(t.Context(), r); problem != nil {
			t.Fatal(problem)
		}
		t.Logf("%s: %d packages, %d bytes received, %d files with %d bytes, %d left out, signed %s by %s, %.1f s", dir,
			len(all.Packages), all.Received, len(all.Tree.Files), all.Tree.Bytes, len(all.Tree.Left),
			all.Date.Format(time.RFC3339), all.Packages[0].Key, time.Since(began).Seconds())
		r.Seen = all.Date
	}
	if all.Received != 0 {
		t.Errorf("%d bytes were fetched again", all.Received)
	}
	for _, l := range all.Tree.Left {
		t.Logf("left out: %q, %s", l.Path, l.Why)
	}
	const lib = "usr/lib/x86_64-linux-gnu/nvidia/current/"
	want := map[string]int64{ // bytes, as dpkg-deb unpacks them
		lib + "libcuda.so.535.261.03":                  29_384_912,
		lib + "libnvidia-ml.so.535.261.03":             1_946_872,
		lib + "libnvidia-ptxjitcompiler.so.535.261.03": 23_357_184,
		"usr/lib/nvidia/current/nvidia-smi":            686_384,
	}
	licences := 0
	for _, f := range all.Tree.Files {
		if size, ok := want[f.Path]; ok && size == f.Size {
			delete(want, f.Path)
		}
		if path.Base(f.Path) == "copyright" {
			licences++
		}
	}
	if len(want) > 0 || licences != 4 {
		t.Errorf("missing, or of another size: %v; %d licences", want, licences)
	}
}
