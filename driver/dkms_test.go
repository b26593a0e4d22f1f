package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

const named = "PACKAGE_NAME=x\nPACKAGE_VERSION=1\n"

// TestDKMSBuild builds like DKMS: it applies the patch for this kernel but not the one for another, runs PRE_BUILD,
// runs make with the variables that DKMS sets, and finds a module under another name in its own directory.
func TestDKMSBuild(t *testing.T) {
	w := newWorkshop(t, `true`)
	sub := func(name, text string, mode os.FileMode) {
		t.Helper()
		p := filepath.Join(w.source, name)
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	sub("patches/good.patch", "--- a/edu.c\n+++ b/edu.c\n@@ -1 +1 @@\n-int x;\n+int patched;\n", 0o644)
	sub("pre.sh", "#!/bin/sh\necho \"$1 $kernelver\" > pre\n", 0o755)
	sub("Makefile", "all:\n\tgrep -q patched edu.c\n\tgrep -q 'now "+ko.Release+"' pre\n\ttest '$(KERNELRELEASE)' = '"+
		ko.Release+
		"'\n\ttest '$(EXTRA)' = 'a b$$c'\n\tcase '$(KCFLAGS)' in *-ffile-prefix-map=*) ;; *) exit 1;; esac\n\ttest \"$$TOP\" = out\n\tmkdir -p out && cp $(KDIR)/good.bin out/inner.ko\n",
		0o644)
	sub("dkms.conf", `PACKAGE_NAME="edu"
PACKAGE_VERSION="1.0.0"
TOP=out
PATCH[0]="good.patch"
PATCH_MATCH[0]="^6\."
PATCH[1]="bad.patch"
PATCH_MATCH[1]="^5\."
PRE_BUILD="pre.sh now"
MAKE[0]="make all KDIR=$kernel_source_dir"
BUILT_MODULE_NAME[0]="inner"
BUILT_MODULE_LOCATION[0]="$TOP"
DEST_MODULE_NAME[0]="edu"
DEST_MODULE_LOCATION[0]="/updates"
`, 0o644)
	def := w.definition()
	def.Driver.Sources[0].Make = []string{"EXTRA=a b$$c"}
	d := New(w.h, Options{StateDir: w.state})
	e, problem := d.sources.Build(t.Context(), def, w.facts())
	if problem != nil {
		logs, _ := filepath.Glob(w.state + "/kmod/failed/*")
		for _, l := range logs {
			b, _ := os.ReadFile(l)
			t.Log(string(b))
		}
		t.Fatal(problem)
	}
	if diff := cmp.Diff("inner.ko", e.Modules[0].File); diff != "" {
		t.Error(diff)
	}
	w.isClean(1)
	sub("dkms.conf", named+"PATCH[0]=none.patch\n", 0o644)
	if _, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem == nil ||
		problem.Reason != accel.SourceInvalid || !strings.Contains(problem.Message, "dkms.conf:3:") {
		t.Error(problem)
	}
	sub("dkms.conf", named+"BUILD_EXCLUSIVE_KERNEL=^5\n", 0o644)
	if _, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem == nil ||
		problem.Reason != accel.KernelMismatch {
		t.Error(problem)
	}
}

// TestMakeSystem builds with the tree's own Makefile, which needs the path of the headers.
func TestMakeSystem(t *testing.T) {
	w := newWorkshop(t, `exit 1`)
	w.write(w.source, "dkms.conf", "if true; then :; fi\n")
	w.write(w.source, "Makefile", "modules:\n\ttest -n '$(KCFLAGS)'\n\tcp $(SYSSRC)/good.bin edu.ko\n")
	def := w.definition()
	def.Driver.Sources[0].System, def.Driver.Sources[0].Make = accel.BuildMake, []string{"SYSSRC={{.KernelHeaders}}"}
	d := New(w.h, Options{StateDir: w.state})
	e, problem := d.sources.Build(t.Context(), def, w.facts())
	if problem != nil {
		t.Fatal(problem)
	}
	if strings.Contains(fmt.Sprint(e.Make), w.headers) {
		t.Errorf("the place of the headers is in the key: %v", e.Make)
	}
}
