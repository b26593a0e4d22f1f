package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"unsafe"
)

// TestABI asks the compiler what module/edu.h says, and compares.
func TestABI(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc in PATH")
	}
	dir := t.TempDir()
	header, err := filepath.Abs("../module/edu.h")
	if err != nil {
		t.Fatal(err)
	}
	source := fmt.Sprintf(`#include <stdio.h>
#include %q
int main(void) {
	printf("%%#lx %%#lx %%#lx %%#lx %%d %%d %%zu %%zu %%zu", (long)EDU_INFO, (long)EDU_FACTORIAL, (long)EDU_DMA_COPY, (long)EDU_DMA_READ,
		EDU_ABI_VERSION, EDU_DMA_MAX,
		sizeof(struct edu_info), sizeof(struct edu_factorial), sizeof(struct edu_dma_copy));
	return 0;
}`, header)
	if err := os.WriteFile(filepath.Join(dir, "abi.c"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "abi")
	if out, err := exec.Command(gcc, "-o", binary, filepath.Join(dir, "abi.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%#x %#x %#x %#x %d %d %d %d %d", uint32(ioctlInfo), uint32(ioctlFactorial), uint32(ioctlCopy),
		uint32(ioctlRead), abiVersion, dmaMax, unsafe.Sizeof(eduInfo{}), unsafe.Sizeof(eduFactorial{}),
		unsafe.Sizeof(eduCopy{}))
	if string(got) != want {
		t.Errorf("edu.h says %s\nthis program says %s", got, want)
	}
}

// TestVersionsAgree keeps DKMS from rebuilding, or not, by a wrong version.
func TestVersionsAgree(t *testing.T) {
	find := func(name, pattern string) string {
		data, err := os.ReadFile(filepath.Join("../module", name))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(pattern).FindSubmatch(data)
		if m == nil {
			t.Fatalf("%s: no match for %s", name, pattern)
		}
		return string(m[1])
	}
	module := find("edu_version.h", `EDU_VERSION\s+"([^"]+)"`)
	if dkms := find("dkms.conf", `PACKAGE_VERSION="([^"]+)"`); dkms != module {
		t.Errorf("dkms.conf says %s, the module %s", dkms, module)
	}
}
