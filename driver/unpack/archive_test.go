package unpack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

const manifest = `Example Driver for Linux
1.2.3

example example-uvm
ignored
ignored
kernel
precompiled
libexample.so.1.2.3 0755 UTILITY_LIB NATIVE
libexample.so.1 0000 UTILITY_LIB_SYMLINK NATIVE libexample.so.1.2.3
vdpau/libexample_vdpau.so.1.2.3 0755 VDPAU_LIB NATIVE vdpau
32/libexample.so.1.2.3 0755 UTILITY_LIB COMPAT32
libexample_accel.so.1 0000 ACCEL_SYMLINK NATIVE / libexample_accel.so.1.2.3
example-smi 0755 UTILITY_BINARY MODULE:core
kernel/example/example.c 0644 KERNEL_MODULE_SRC INHERIT_PATH_DEPTH:1 MODULE:core
firmware/example.bin 0644 FIRMWARE INHERIT_PATH_DEPTH:1
example.icd 0644 ACCEL_ICD
LICENSE 0644 DOCUMENTATION doc
something 0644 QUANTUM_FOAM NATIVE
`

// TestManifest: a manifest says what each file is, and an unknown type is a warning.
func TestManifest(t *testing.T) {
	m, err := ParseManifest(strings.NewReader(manifest))
	if err != nil {
		t.Fatal(err)
	}
	want := Manifest{
		Description: "Example Driver for Linux", Version: "1.2.3", Modules: []string{"example", "example-uvm"},
		Entries: []ManifestEntry{
			{File: "libexample.so.1.2.3", Type: "UTILITY_LIB", Class: Library},
			{File: "libexample.so.1", Type: "UTILITY_LIB_SYMLINK", Class: Library, Target: "libexample.so.1.2.3"},
			{File: "vdpau/libexample_vdpau.so.1.2.3", Type: "VDPAU_LIB", Class: Library, Path: "vdpau"},
			{File: "32/libexample.so.1.2.3", Type: "UTILITY_LIB", Class: Library, Compat: true},
			{
				File: "libexample_accel.so.1", Type: "ACCEL_SYMLINK", Class: Library, Path: "/",
				Target: "libexample_accel.so.1.2.3",
			},
			{File: "example-smi", Type: "UTILITY_BINARY", Class: Program},
			{File: "kernel/example/example.c", Type: "KERNEL_MODULE_SRC", Class: Module, Path: "example"},
			{File: "firmware/example.bin", Type: "FIRMWARE", Class: Firmware},
			{File: "example.icd", Type: "ACCEL_ICD", Class: Configuration},
			{File: "LICENSE", Type: "DOCUMENTATION", Class: Documentation, Path: "doc"},
			{File: "something", Type: "QUANTUM_FOAM", Class: Other},
		},
		Warnings: []string{`file "something" has the unknown type QUANTUM_FOAM`},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "one line", "a\n1\n\nm\n", strings.Repeat("x\n", 1000)} {
		if m, err := ParseManifest(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q is a manifest: %+v", bad, m)
		}
	}
}

// script is a self-extracting archive; lines are those before the archive, and the script names them.
func script(archive []byte, variables string) []byte {
	text := "#!/bin/sh\n# must never run\ntouch /etc/ran\n" + variables + "\nexit 0\n"
	return append([]byte(text), archive...)
}

// archived puts a file on the host and unpacks it with its own digest.
func (b *bench) archived(text []byte) (Archived, *accel.Problem) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.root, "archive"), text, 0o644); err != nil {
		b.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return Archive(b.Context(), b.h, "/archive", hex.EncodeToString(sum[:]), "/out", small())
}

// TestArchive: an archive is unpacked with its manifest, plain or behind a script, which is not run.
func TestArchive(t *testing.T) {
	redistributable := pack("xz", tarred(file("x-archive/MANIFEST", manifest), file("x-archive/LICENSE", "a licence")))
	flat := pack("zstd", tarred(file("./.manifest", manifest), file("./LICENSE", "a licence")))
	for name, c := range map[string]struct {
		text []byte
		top  string
	}{
		"archive":           {redistributable, "x-archive"},
		"head":              {script(flat, `skip="5"`), "."},
		"tail":              {script(flat, "skip=6"), "."},
		"size":              {append(script(flat, fmt.Sprintf("skip=\"6\"\nfilesizes=\"%d\"", len(flat))), "more"...), "."},
		"command":           {script(flat, "offset=`head -n 5 \"$0\" | wc -c | tr -d \" \"`"), "."},
		"archive in script": {script(redistributable, `skip="5"`), "x-archive"},
	} {
		b := newBench(t)
		a, problem := b.archived(c.text)
		if problem != nil {
			t.Errorf("%s: %v", name, problem)
			continue
		}
		if a.Top != c.top || a.Manifest.Version != "1.2.3" || len(a.Files) != 2 ||
			b.there()[filepath.Join(c.top, "LICENSE")] != "a licence" {
			t.Errorf("%s: %+v", name, a)
		}
		if _, err := os.Stat(filepath.Join(b.root, "etc/ran")); err == nil {
			t.Errorf("%s: the script was run", name)
		}
	}
}

// TestArchiveRefused: without its digest, or with another, nothing of an archive is unpacked.
func TestArchiveRefused(t *testing.T) {
	good := pack("xz", tarred(file("MANIFEST", manifest)))
	b := newBench(t)
	if err := os.WriteFile(filepath.Join(b.root, "archive"), good, 0o644); err != nil {
		t.Fatal(err)
	}
	for pin, want := range map[string]accel.Reason{
		"": accel.ConfigInvalid, "sha256:x": accel.ConfigInvalid, strings.Repeat("0", 64): accel.DigestMismatch,
	} {
		_, problem := Archive(t.Context(), b.h, "/archive", pin, "/out", small())
		if problem == nil || problem.Reason != want || len(b.there()) > 0 {
			t.Errorf("%q: %v", pin, problem)
		}
	}
	if _, problem := Archive(t.Context(), b.h, "/none", strings.Repeat("0", 64), "/out", small()); problem == nil ||
		problem.Reason != accel.ArtifactNotFound {
		t.Error(problem)
	}
	for name, text := range map[string][]byte{
		"no manifest":       pack("xz", tarred(file("x", "x"))),
		"a broken manifest": pack("xz", tarred(file("MANIFEST", "x"))),
		"no offset":         script(good, ""),
		"no such line":      script(good, "skip=7000"),
		"another line":      script(good, "skip=2"),
		"two archives":      script(good, "skip=6\nfilesizes=\"1 2\""),
		"too long":          script(good, "skip=6\nfilesizes=\"99999\""),
		"traversal":         script(pack("gzip", tarred(file("MANIFEST", manifest), file("../x", "x"))), "skip=5"),
	} {
		b := newBench(t)
		if _, problem := b.archived(text); problem == nil || problem.Reason != accel.ArtifactInvalid {
			t.Errorf("%s: %v", name, problem)
		}
	}
}

// fuzzed unpacks whatever it is into /out of the host and fails if it leaves the directory or the bounds.
func fuzzed(t *testing.T, b *bench, raw []byte, f Format) {
	t.Helper()
	x := New(t.Context(), b.h, "/out", small())
	x.syncDisk = func(string) error { return nil } // of the whole machine, thousands of times
	if x.Add(bytes.NewReader(raw), f) == nil {
		_, _ = x.Finish() // what it left is what counts
	}
	b.TB = t
	b.untouched()
	total := 0
	for _, text := range b.there() {
		total += len(text)
	}
	if total > 1<<20+100*100 {
		t.Errorf("%d bytes were written", total)
	}
	out := filepath.Join(b.root, "out")
	if err := os.RemoveAll(out); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
}

// FuzzAr: whatever a deb contains, nothing is written outside of the directory or beyond the bounds.
func FuzzAr(f *testing.F) {
	b := newBench(f)
	f.Add(deb(file("usr/x", "x"), link("y", "usr/x")))
	f.Add(arred(debVersion, "2.0\n", "control.tar", string(tarred(file("control", "Package: x\n"))), "data.tar",
		string(tarred(file("x", "x")))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzed(t, b, raw, DEB)
	})
}

// FuzzCPIO is [FuzzAr] for cpio.
func FuzzCPIO(f *testing.F) {
	b := newBench(f)
	f.Add(cpioed(file("usr/x", "x"), link("y", "usr/x")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzed(t, b, raw, CPIO)
	})
}

// FuzzTree is [FuzzAr] for tar: files and links with any names.
func FuzzTree(f *testing.F) {
	b := newBench(f)
	f.Add("usr/x", "y", "/usr/x", "z", "y/../../x")
	f.Add("a/b", "a", "..", "c", "a/b")
	f.Fuzz(func(t *testing.T, name, link1, to1, link2, to2 string) {
		for _, s := range []string{name, link1, to1, link2, to2} {
			if len(s) > 100 || strings.ContainsRune(s, 0) {
				t.Skip("no name of a tar archive")
			}
		}
		if strings.HasSuffix(name, "/") || strings.HasSuffix(link1, "/") || strings.HasSuffix(link2, "/") {
			t.Skip("a name that the writer of tar archives refuses")
		}
		raw := tarred(file(name, "x"), link(link1, to1), link(link2, to2))
		fuzzed(t, b, raw, Tar)
	})
}

// FuzzManifest: whatever a manifest contains, its entries stay below their directory.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifest))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseManifest(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, e := range m.Entries {
			if !filepath.IsLocal(e.File) {
				t.Errorf("it names the file %q", e.File)
			}
		}
	})
}

// FuzzScript: whatever the script of a self-extracting archive says, the archive is inside of the file.
func FuzzScript(f *testing.F) {
	f.Add(script(pack("gzip", tarred(file("x", "x"))), "skip=5"))
	f.Add(script(pack("gzip", tarred(file("x", "x"))), "skip=6\nfilesizes=\"12\""))
	f.Fuzz(func(t *testing.T, text []byte) {
		if offset, size, err := payload(text); err == nil && (offset < 0 || offset >= int64(len(text)) || size < 0) {
			t.Errorf("an archive of %d bytes begins at %d of %d", size, offset, len(text))
		}
	})
}
