package kmod

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
	"github.com/acceld/acceld/test/ko/signed"
)

func TestReadModule(t *testing.T) {
	x := ko.Edu()
	x.Info = append(x.Info, "depends=i2c-core,drm", "srcversion=ABC", "softdep=pre: a-b post: c")
	x.CRCs = map[string]uint32{"module_layout": 0xdeadbeef, "printk": 7}
	x.Undefined, x.Defined = []string{"printk", "kfree"}, []string{"edu_go"}
	x.Signature = signed.BySomebody(t, "sha512")
	b := x.Bytes()
	got, problem := Read(bytes.NewReader(b), int64(len(b)))
	if problem != nil {
		t.Fatal(problem)
	}
	want := &Info{
		machine: elf.EM_X86_64, Name: "edu", Version: "1.0.0", SrcVersion: "ABC", BuildID: x.BuildID,
		Vermagic: ko.Release + " " + ko.Flags, Depends: []string{"i2c_core", "drm"}, softBefore: []string{"a_b"},
		softAfter:  []string{"c"},
		parameters: map[string]string{"fail_probe": "", "max_factorial": "uint"}, exports: map[string]uint32{"edu_go": 0},
		CRCs: map[string]uint32{"module_layout": 0xdeadbeef, "printk": 7}, undefined: []string{"kfree", "printk"},
	}
	if s := got.Signature; s == nil || s.Issuer != "test: signer" || s.Hash != "sha512" || s.Damaged != "" {
		t.Errorf("%+v", s)
	}
	got.Signature = nil
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Info{})); diff != "" {
		t.Error(diff)
	}
}

// TestReadModuleTruncated cuts a module at every byte: no panic, and no module that claims to be complete.
func TestReadModuleTruncated(t *testing.T) {
	x := ko.Edu()
	x.CRCs = map[string]uint32{"module_layout": 1, "printk": 2}
	x.Undefined = []string{"printk"}
	b := x.Bytes()
	for n := range len(b) {
		if _, problem := Read(bytes.NewReader(b[:n]), int64(n)); problem == nil ||
			problem.Reason != accel.ModuleInvalid {
			t.Fatalf("cut at %d of %d: %v", n, len(b), problem)
		}
	}
}

// TestReadModuleSections: every section must lie within the file, including those that are not read here, such as the
// code: otherwise the kernel would be the first to notice. A section without file content may have any size.
func TestReadModuleSections(t *testing.T) {
	const code = 2 // the section that is turned into code: the versions
	for _, c := range []struct {
		name   string
		change func(size uint64, header []byte, first []byte)
		whole  bool
	}{
		{"as it is", func(uint64, []byte, []byte) {}, true},
		{"ends with the file", func(size uint64, h, _ []byte) { put64(h, 24, size-64); put64(h, 32, 64) }, true},
		{"empty at the end of the file", func(size uint64, h, _ []byte) { put64(h, 24, size); put64(h, 32, 0) }, true},
		{"ends one byte after the file", func(size uint64, h, _ []byte) {
			put64(h, 24, size-64)
			put64(h, 32, 65)
		}, false},
		{"begins after the file", func(size uint64, h, _ []byte) { put64(h, 24, size+1); put64(h, 32, 0) }, false},
		{"longer than the file", func(size uint64, h, _ []byte) { put64(h, 32, size+1) }, false},
		{"zeroed memory, larger than the file", func(size uint64, h, _ []byte) {
			put32(h, 4, uint32(elf.SHT_NOBITS))
			put64(h, 32, size+1)
		}, true},
		// its size may hold the number of sections
		{"no section at all", func(size uint64, _, first []byte) { put64(first, 32, size+1) }, true},
	} {
		x := ko.Edu()
		b := bytes.Replace(x.Bytes(), []byte("__versions\x00"), []byte(".text\x00\x00\x00\x00\x00\x00"), 1)
		table := b[binary.LittleEndian.Uint64(b[40:]):]
		c.change(uint64(len(b)), table[64*code:], table)
		_, problem := Read(bytes.NewReader(b), int64(len(b)))
		if c.whole && problem != nil || !c.whole && (problem == nil || problem.Reason != accel.ModuleInvalid) {
			t.Errorf("%s: %v", c.name, problem)
		}
	}
}

func put64(b []byte, at int, v uint64) { binary.LittleEndian.PutUint64(b[at:], v) }

func put32(b []byte, at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }

// TestReadModuleExports: a symbol whose version would lie beyond the version table has no known version.
func TestReadModuleExports(t *testing.T) {
	x := ko.Edu()
	x.Defined = append(x.Defined, "__ksymtab_edu_go") // in the first section, whose bytes then serve as the table
	whole := x.Bytes()
	f, err := elf.NewFile(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__ksymtab_edu_go" })
	size := f.Sections[1].Size
	for name, c := range map[string]struct {
		at    uint64
		known bool
	}{
		"the first":         {0, true},
		"the last":          {size * (size/4 - 1), true},
		"behind the last":   {size * (size / 4), false},
		"far behind":        {size * size, false},
		"as far as it goes": {1<<64 - 1, false},
	} {
		b := bytes.Clone(whole)
		put64(b[f.Section(".symtab").Offset:], 24*(i+1)+8, c.at) // after the null symbol; st_value
		got, problem := Read(bytes.NewReader(b), int64(len(b)))
		if problem != nil {
			t.Errorf("%s: %v", name, problem)
		} else if (got.exports["edu_go"] != 0) != c.known {
			t.Errorf("%s: version %#x", name, got.exports["edu_go"])
		}
	}
}

func TestReadModuleNotAModule(t *testing.T) {
	executable := ko.Edu().Bytes()
	executable[16] = byte(elf.ET_EXEC)
	small := ko.Edu().Bytes()
	small[4] = byte(elf.ELFCLASS32)
	for name, b := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "executable": executable,
		"32-bit": small, "zeros": make([]byte, 4096),
	} {
		if _, problem := Read(bytes.NewReader(b), int64(len(b))); problem == nil ||
			problem.Reason != accel.ModuleInvalid {
			t.Errorf("%s: %v", name, problem)
		}
	}
}

// TestReadModuleDamaged changes and cuts a module pseudo-randomly, the same way in each run.
func TestReadModuleDamaged(t *testing.T) {
	x := ko.Edu()
	x.CRCs, x.Undefined = map[string]uint32{"module_layout": 1}, []string{"printk"}
	whole := x.Bytes()
	dice := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		b := bytes.Clone(whole)
		for range 1 + dice.IntN(4) {
			b[dice.IntN(len(b))] = byte(dice.IntN(256))
		}
		if dice.IntN(3) == 0 {
			b = b[:dice.IntN(len(b))]
		}
		if m, problem := Read(bytes.NewReader(b), int64(len(b))); (m == nil) == (problem == nil) {
			t.Fatalf("both or neither of a module and a problem for %x", b)
		}
	}
}

func FuzzReadModule(f *testing.F) {
	x := ko.Edu()
	x.CRCs = map[string]uint32{"module_layout": 1}
	x.Undefined, x.Defined = []string{"printk"}, []string{"x"}
	f.Add(x.Bytes())
	x.Signature = signed.BySomebody(f, "sha256")
	f.Add(x.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, problem := Read(bytes.NewReader(b), int64(len(b)))
		if (m == nil) == (problem == nil) {
			t.Fatal("both or neither of a module and a problem")
		}
	})
}
