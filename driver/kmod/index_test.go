package kmod

import (
	"path"
	"strings"
	"testing"

	"github.com/acceld/acceld/test/ko"
)

func TestInstalledOrder(t *testing.T) {
	m := ko.NewMachine(t)
	dir := "/lib/modules/" + ko.Release
	m.Write(dir+"/modules.dep", strings.Join([]string{
		"kernel/edu.ko.xz: kernel/b.ko kernel/a.ko",
		"updates/dkms/edu.ko: extra/c-d.ko.zst kernel/a.ko",
		"extra/edu.ko:",
		"extra/c-d.ko.zst: kernel/a.ko",
		"kernel/a.ko:", "not a line",
	}, "\n"))
	x := NewIndex(m.Host, ko.Release)
	file, _ := x.file("edu")
	if file != path.Join(dir, "updates/dkms/edu.ko") {
		t.Error(file)
	}
	chain := x.chain("edu")
	want := []string{dir + "/kernel/a.ko", dir + "/extra/c-d.ko.zst", dir + "/updates/dkms/edu.ko"}
	if strings.Join(chain, " ") != strings.Join(want, " ") {
		t.Error(chain)
	}
	if file, ok := x.file("c_d"); !ok || !strings.HasSuffix(file, "c-d.ko.zst") {
		t.Error(file)
	}
	if !x.inKernel("builtinfs") {
		t.Error("modules.builtin was not read")
	}
}
