package driver

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

// TestFullDisk builds into file systems of every size from nothing to enough. Until the size is enough, the result is
// NoSpace without partial state; then the build works without help.
func TestFullDisk(t *testing.T) {
	big := ko.Edu()
	for i := range 2000 {
		big.Info = append(big.Info, fmt.Sprintf("alias=pci:v%08d", i))
	}
	w := newWorkshop(t, `cp big.bin $(M)/edu.ko`)
	w.write(w.headers, "big.bin", string(big.Bytes()))
	if err := syscall.Mount("tmpfs", w.state, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(w.state, syscall.MNT_DETACH) })
	built := false
	for size := 16; size <= 512; size += 16 {
		if err := syscall.Mount("tmpfs", w.state, "tmpfs", syscall.MS_REMOUNT,
			fmt.Sprintf("size=%dk", size)); err != nil {
			t.Fatal(err)
		}
		d := New(w.h, Options{StateDir: w.state})
		_, problem := d.sources.Build(t.Context(), w.definition(), w.facts())
		if problem == nil {
			built = true
			w.isClean(1)
			break
		}
		if problem.Reason != accel.NoSpace {
			t.Errorf("with %d KiB: %v", size, problem)
		}
		w.isClean(0)
		_ = os.RemoveAll(w.state + "/kmod/failed")
	}
	if !built {
		t.Error("never built")
	}
	if err := syscall.Mount("tmpfs", w.state, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	w.write(w.source, "edu.c", "int y;\n")
	if _, problem := New(w.h, Options{StateDir: w.state}).sources.Build(t.Context(), w.definition(),
		w.facts()); problem == nil || problem.Reason != accel.ReadOnly {
		t.Error(problem)
	}
}
