package detect

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/acceld/acceld/accel"
)

const wantID = "e8000000e900ffe8e9e8000102030405060708ff"

// fakeVmlinux returns an ELF file with a note after code that is full of calls.
func fakeVmlinux(t *testing.T) []byte {
	t.Helper()
	le := binary.LittleEndian
	b := make([]byte, 64+56*2)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint64(b[32:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 2)
	for i := range 20_000 { // near and far calls, and bytes that only look like calls
		b = append(b, 0x90, byte(0xe8+i%3), byte(i), byte(i>>8), byte(i>>16), byte(-(i % 2)), byte(0xe9-i%2), byte(i%5))
	}
	b = append(b, 4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0)
	var id [20]byte
	for i := range id {
		if _, err := decode(wantID[2*i:2*i+2], &id[i]); err != nil {
			t.Fatal(err)
		}
	}
	le.PutUint32(b[64+56:], 4) // PT_NOTE
	le.PutUint64(b[64+56+8:], uint64(len(b)-16))
	le.PutUint64(b[64+56+32:], 36)
	return append(append(b, id[:]...), make([]byte, 100_000)...)
}

func decode(hex string, to *byte) (int, error) {
	for _, c := range []byte(hex) {
		*to = *to<<4 | byte(strings.IndexByte("0123456789abcdef", c))
	}
	return 1, nil
}

// fakeBzImage puts a payload into an x86 image.
func fakeBzImage(payload []byte, banner string) []byte {
	const sectors = 3
	b := make([]byte, (sectors+1)*512)
	b[0x1f1] = sectors
	copy(b[0x202:], "HdrS\x0f\x02")
	binary.LittleEndian.PutUint16(b[0x20e:], 0x400-0x200)
	copy(b[0x400:], banner)
	binary.LittleEndian.PutUint32(b[0x248:], 7)
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(len(payload)))
	return append(append(b, "nothing"...), payload...)
}

func packed(t *testing.T, data []byte, argv ...string) []byte {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("program %q, which packs as the kernel's build does, does not run: %v", argv[0], err)
	}
	return out
}

// hugeXZ is the beginning of an .xz stream that requires a dictionary of 256 MiB (The .xz File Format, sections 2.1.1,
// 3.1).
func hugeXZ() []byte {
	block := []byte{2, 0, 0x21, 1, 32, 0, 0, 0}
	block = binary.LittleEndian.AppendUint32(block, crc32.ChecksumIEEE(block))
	return append([]byte("\xfd7zXZ\x00\x00\x01\x69\x22\xde\x36"), append(block, make([]byte, 64)...)...)
}

func TestReadKernelImage(t *testing.T) {
	const banner = "6.1.0-9-amd64 (somebody@somewhere) #1 SMP PREEMPT Debian 6.1.1-1 (2026-01-02)"
	const version = "#1 SMP PREEMPT Debian 6.1.1-1 (2026-01-02)"
	vmlinux := fakeVmlinux(t)
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write(vmlinux)
	_ = w.Close()
	z, _ := zstd.NewWriter(nil)
	x86 := kernelImage{"x86_64", "6.1.0-9-amd64", version, wantID}
	without := x86
	without.buildID = ""
	flat := append(append(make([]byte, 200_000),
		"Linux version %s\x00Linux version 6.1.0-9-arm64 (a@b) (gcc (Debian 12) 12.2, GNU ld 2.4) "+version+
			"\n\x00"...), make([]byte, 1000)...)
	arm := kernelImage{release: "6.1.0-9-arm64", version: version}
	var image bytes.Buffer
	w = gzip.NewWriter(&image)
	_, _ = w.Write(flat)
	_ = w.Close()
	zboot := append([]byte("MZ\x00\x00zimg\x00\x10\x00\x00"), make([]byte, 0x1000-12)...)
	binary.LittleEndian.PutUint32(zboot[12:], uint32(image.Len()))
	for name, c := range map[string]struct {
		file []byte
		want kernelImage
		says string
	}{
		"gzip": {fakeBzImage(gz.Bytes(), banner), x86, ""},
		"zstd": {fakeBzImage(z.EncodeAll(vmlinux, nil), banner), x86, ""},
		"xz": {
			fakeBzImage(packed(t, vmlinux, "xz", "--check=crc32", "--x86", "--lzma2=dict=1MiB"), banner), x86,
			"",
		},
		"xz, plain": {fakeBzImage(packed(t, vmlinux, "xz", "--check=crc32", "--lzma2=dict=1MiB"), banner), x86, ""},
		"xz, size behind": {
			fakeBzImage(append(packed(t, vmlinux, "xz", "--check=crc32", "--x86", "--lzma2"), 1, 2, 3, 4), banner), x86,
			"",
		},
		"xz, huge dictionary": {fakeBzImage(hugeXZ(), banner), without, "dictionary size"},
		"lz4":                 {fakeBzImage([]byte("\x02\x21\x4c\x18 and so on"), banner), without, "packed in a way"},
		"cut":                 {fakeBzImage(gz.Bytes()[:gz.Len()/8], banner), without, "EOF"},
		"vmlinux":             {vmlinux, kernelImage{buildID: wantID}, ""},
		"Image.gz":            {image.Bytes(), arm, ""},
		"Image":               {flat, arm, ""},
		"zboot":               {append(zboot, image.Bytes()...), arm, ""},
		"nothing":             {make([]byte, 5000), kernelImage{}, "no kernel's banner"},
		"short":               {[]byte("x"), kernelImage{}, "too short"},
		"payload past end":    {append(fakeBzImage(nil, banner)[:0x24c], make([]byte, 0x800)...), without, "EOF"},
	} {
		got, err := readKernelImage(bytes.NewReader(c.file), int64(len(c.file)))
		if name == "payload past end" {
			got.release, got.version = without.release, without.version // cut off with the rest
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(kernelImage{})); diff != "" ||
			(err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q\n%s", name, err, c.says, diff)
		}
	}
}

// FuzzReadKernelImage reads arbitrary data.
func FuzzReadKernelImage(f *testing.F) {
	f.Add(fakeBzImage([]byte("\xfd7zXZ\x00\x00\x01\x69\x22\xde\x36\x02\x01\x04\x00\x21\x01\x1a\x00"), "6.1 (a) #1"))
	f.Add(append([]byte("\x7fELF\x02\x01"), make([]byte, 0x1000)...))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = readKernelImage(bytes.NewReader(b), int64(len(b)))
	})
}

func TestInstalledKernel(t *testing.T) {
	vmlinux := fakeVmlinux(t)
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write(vmlinux)
	_ = w.Close()
	h := machine(t, map[string]string{
		"lib/modules/6.1-a/modules.dep": "", "lib/modules/6.1-b/kernel/x": "", "lib/modules/leftover/build/x": "",
		"boot/vmlinuz-6.1-a":                   string(fakeBzImage(gz.Bytes(), "6.1-a (x) #2 SMP")),
		"boot/vmlinuz-6.1-b":                   string(fakeBzImage(gz.Bytes(), "6.1-z (x) #2 SMP")),
		"boot/config-6.1-a":                    "CONFIG_X=y\nCONFIG_MODULE_SIG_FORCE=y\n",
		"usr/src/linux-headers-6.1-a/Makefile": "x",
	})
	if diff := cmp.Diff([]string{"6.1-a", "6.1-b"}, InstalledKernels(h)); diff != "" {
		t.Error(diff)
	}
	running := accel.Kernel{
		Release: "6.0", Version: "#1", BuildID: "aa", BootID: "b", Arch: "x86_64", Lockdown: "none",
		Taint: 1, ModulesDisabled: true, Headers: "/h",
	}
	got, problems := InstalledKernel(h, "6.1-a", running)
	want := accel.Kernel{
		Release: "6.1-a", Version: "#2 SMP", BuildID: wantID, Arch: "x86_64", Lockdown: "none",
		SigEnforce: true, NotRunning: true, Headers: "/usr/src/linux-headers-6.1-a",
	}
	if diff := cmp.Diff(want, got); diff != "" || len(problems) > 0 {
		t.Error(problems, diff)
	}
	for release, says := range map[string]string{
		"6.1-b": `is kernel "6.1-z"`, "6.2": "no file of it",
		"../x": "no release",
	} {
		got, problems := InstalledKernel(h, release, running)
		if len(problems) != 1 || !strings.Contains(problems[0], says) || got.BuildID != "" || got.Version != "" {
			t.Errorf("%s: %v, %+v", release, problems, got)
		}
	}
	if got, problems := InstalledKernel(h, "6.0", running); got != running || problems != nil {
		t.Error(got, problems)
	}
}

// TestRealKernelImages reads the kernels in the machine's /boot, or in ACCELD_BOOT.
func TestRealKernelImages(t *testing.T) {
	dir := os.Getenv("ACCELD_BOOT")
	if dir == "" {
		t.Skip("reads real kernels: needs ACCELD_BOOT, a directory with some")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		release, ok := strings.CutPrefix(e.Name(), "vmlinuz-")
		if !ok {
			continue
		}
		f, err := os.Open(dir + "/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		st, _ := f.Stat()
		k, err := readKernelImage(f, st.Size())
		if err != nil || k.release != release || len(k.buildID) != 40 {
			t.Errorf("%s: %+v, %v", release, k, err)
		}
		t.Logf("%+v", k)
		_ = f.Close()
	}
}
