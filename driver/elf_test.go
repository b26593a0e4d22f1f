package driver

import (
	"bytes"
	"debug/elf"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

func TestReadModule(t *testing.T) {
	x := edu()
	x.info = append(x.info, "depends=i2c-core,drm", "srcversion=ABC", "softdep=pre: a-b post: c")
	x.crcs = map[string]uint32{"module_layout": 0xdeadbeef, "printk": 7}
	x.undefined, x.defined = []string{"printk", "kfree"}, []string{"edu_go"}
	x.signature = testSignature(t, "sha512")
	b := x.bytes()
	got, problem := readModule(bytes.NewReader(b), int64(len(b)))
	if problem != nil {
		t.Fatal(problem)
	}
	want := &moduleFile{
		machine: elf.EM_X86_64, name: "edu", version: "1.0.0", srcVersion: "ABC", buildID: x.buildID,
		vermagic: testRelease + " " + testFlags, depends: []string{"i2c_core", "drm"}, softBefore: []string{"a_b"},
		softAfter:  []string{"c"},
		parameters: map[string]string{"fail_probe": "", "max_factorial": "uint"}, signature: &signature{issuer: "test: signer", hash: "sha512"}, exports: map[string]uint32{},
		crcs: map[string]uint32{"module_layout": 0xdeadbeef, "printk": 7}, undefined: []string{"kfree", "printk"}, defined: map[string]bool{"edu_go": true},
	}
	want.signature.serial, want.signature.rawName = got.signature.serial, got.signature.rawName
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(moduleFile{}, signature{}), cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Error(diff)
	}
}

// TestReadModuleTruncated cuts a module everywhere: never a panic, and never a module that claims to be whole.
func TestReadModuleTruncated(t *testing.T) {
	x := edu()
	x.crcs = map[string]uint32{"module_layout": 1, "printk": 2}
	x.undefined = []string{"printk"}
	b := x.bytes()
	for n := range len(b) {
		if _, problem := readModule(bytes.NewReader(b[:n]), int64(n)); problem == nil || problem.Reason != accel.ModuleInvalid {
			t.Fatalf("cut at %d of %d: %v", n, len(b), problem)
		}
	}
}

func TestReadModuleNotAModule(t *testing.T) {
	executable := edu().bytes()
	executable[16] = byte(elf.ET_EXEC)
	small := edu().bytes()
	small[4] = byte(elf.ELFCLASS32)
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("hello"), "executable": executable, "32-bit": small, "zeros": make([]byte, 4096)} {
		if _, problem := readModule(bytes.NewReader(b), int64(len(b))); problem == nil || problem.Reason != accel.ModuleInvalid {
			t.Errorf("%s: %v", name, problem)
		}
	}
}

// TestReadModuleDamaged changes and cuts a module at random, the same way each time.
func TestReadModuleDamaged(t *testing.T) {
	x := edu()
	x.crcs, x.undefined = map[string]uint32{"module_layout": 1}, []string{"printk"}
	whole := x.bytes()
	dice := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		b := bytes.Clone(whole)
		for range 1 + dice.IntN(4) {
			b[dice.IntN(len(b))] = byte(dice.IntN(256))
		}
		if dice.IntN(3) == 0 {
			b = b[:dice.IntN(len(b))]
		}
		if m, problem := readModule(bytes.NewReader(b), int64(len(b))); (m == nil) == (problem == nil) {
			t.Fatalf("both or neither of a module and a problem for %x", b)
		}
	}
}

func FuzzReadModule(f *testing.F) {
	x := edu()
	x.crcs = map[string]uint32{"module_layout": 1}
	x.undefined, x.defined = []string{"printk"}, []string{"x"}
	f.Add(x.bytes())
	x.signature = testSignature(f, "sha256")
	f.Add(x.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, problem := readModule(bytes.NewReader(b), int64(len(b)))
		if (m == nil) == (problem == nil) {
			t.Fatal("both or neither of a module and a problem")
		}
	})
}
