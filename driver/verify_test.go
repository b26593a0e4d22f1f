package driver

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"path"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/acceld/acceld/accel"
)

// TestVerify has a row for each way in which a module file is wrong; each ends in its own reason without the kernel
// being asked.
func TestVerify(t *testing.T) {
	with := func(change func(*elfModule)) elfModule {
		x := edu()
		change(&x)
		return x
	}
	same := func(*accel.Facts) {}
	for _, c := range []struct {
		name       string
		module     elfModule
		facts      func(*accel.Facts)
		parameters map[string]string
		want       accel.Reason
	}{
		{"good", edu(), same, map[string]string{"fail_probe": "0"}, ""},
		{"architecture", with(func(x *elfModule) { x.machine = elf.EM_AARCH64 }), same, nil, accel.ArchMismatch},
		{"release", with(func(x *elfModule) { x.vermagic = "6.1.1-test " + testFlags }), same, nil, accel.KernelMismatch},
		{"flags", with(func(x *elfModule) { x.vermagic = testRelease + " SMP mod_unload modversions" }), same, nil, accel.KernelMismatch},
		{"no vermagic", with(func(x *elfModule) { x.vermagic = " " }), same, nil, accel.KernelMismatch},
		{"name", with(func(x *elfModule) { x.name = "other" }), same, nil, accel.ModuleInvalid},
		{"parameter", edu(), same, map[string]string{"typo": "1"}, accel.ParameterUnknown},
		{"layout", with(func(x *elfModule) { x.crcs = map[string]uint32{"module_layout": 2} }), same, nil, accel.SymbolMismatch},
		{"crc", with(func(x *elfModule) {
			x.crcs = map[string]uint32{"module_layout": 1, "printk": 9}
			x.undefined = []string{"printk"}
		}), same, nil, accel.SymbolMismatch},
		{"good crc", with(func(x *elfModule) {
			x.crcs = map[string]uint32{"module_layout": 1, "printk": 3}
			x.undefined = []string{"printk"}
		}), same, nil, ""},
		{"symbol", with(func(x *elfModule) { x.undefined = []string{"gone"} }), same, nil, accel.SymbolMissing},
		{"symbol of a live module", with(func(x *elfModule) { x.undefined = []string{"of_live"} }), same, nil, ""},
		{"unsigned", edu(), func(f *accel.Facts) { f.Kernel.SigEnforce = true }, nil, accel.Unsigned},
		{"signed", with(func(x *elfModule) { x.signature = testSignature(t, "sha256") }), func(f *accel.Facts) { f.Kernel.SigEnforce = true }, nil, ""},
		{"lockdown", edu(), func(f *accel.Facts) { f.Kernel.Lockdown = "integrity" }, nil, accel.LockedDown},
		{"no lockdown", edu(), func(f *accel.Facts) { f.Kernel.Lockdown = "none" }, nil, ""},
		{"modules disabled", edu(), func(f *accel.Facts) { f.Kernel.ModulesDisabled = true }, nil, accel.ModulesDisabled},
		{"dependency", with(func(x *elfModule) { x.info = append(x.info, "depends=nowhere") }), same, nil, accel.DependencyMissing},
		{"builtin dependency", with(func(x *elfModule) { x.info = append(x.info, "depends=builtinfs") }), same, map[string]string{"fail_probe": "0"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.install("kernel/own.ko", elfModule{name: "own"})
			m.write("/lib/modules/"+testRelease+"/build/Module.symvers", "0x00000001\tmodule_layout\tvmlinux\tEXPORT_SYMBOL\t\n0x00000003\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n")
			m.write("/proc/kallsyms", "0000000000000000 T startup\n0000000000000000 r __ksymtab_of_live\t[live]\n")
			m.install("updates/edu.ko", c.module)
			// The file's name says edu whatever the module inside says.
			def := eduDefinition()
			def.Driver.Modules[0].Parameters = c.parameters
			facts := m.facts()
			c.facts(&facts)
			d := m.driver(Options{})
			_, problem := d.Ensure(t.Context(), def, facts, m.accs())
			if c.want == "" {
				if problem != nil {
					t.Fatal(problem)
				}
				return
			}
			if problem == nil || problem.Reason != c.want {
				t.Fatalf("got %v, want %s", problem, c.want)
			}
			if len(m.loads) != 0 {
				t.Errorf("the kernel was asked to load %v", m.loads)
			}
			if last := problem.Tried[len(problem.Tried)-1]; !strings.HasPrefix(last, "installed: refused: ") {
				t.Errorf("tried ends with %q", last)
			}
		})
	}
}

func TestVerifyWithoutAnythingToCompare(t *testing.T) {
	m := newMachine(t)
	x := edu()
	x.undefined, x.crcs, x.vermagic = []string{"gone"}, map[string]uint32{"module_layout": 5}, testRelease+" odd flags"
	m.install("updates/edu.ko", x)
	if _, problem := m.driver(Options{}).Ensure(t.Context(), eduDefinition(), m.facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
}

func TestFirmware(t *testing.T) {
	m := newMachine(t)
	m.install("updates/edu.ko", edu())
	def := eduDefinition()
	def.Driver.Modules[0].Firmware = []string{"edu/fw.bin"}
	d := m.driver(Options{})
	if _, problem := d.Ensure(t.Context(), def, m.facts(), m.accs()); problem == nil || problem.Reason != accel.FirmwareMissing {
		t.Fatal(problem)
	}
	m.write("/lib/firmware/edu/fw.bin.zst", "x")
	if _, problem := d.Ensure(t.Context(), def, m.facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
}

func TestCompressed(t *testing.T) {
	plain := edu().bytes()
	pack := map[string]func(*bytes.Buffer){
		".xz": func(b *bytes.Buffer) {
			w, err := xz.NewWriter(b)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = w.Write(plain)
			_ = w.Close()
		},
		".zst": func(b *bytes.Buffer) {
			w, err := zstd.NewWriter(b)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = w.Write(plain)
			_ = w.Close()
		},
		".gz": func(b *bytes.Buffer) {
			w := gzip.NewWriter(b)
			_, _ = w.Write(plain)
			_ = w.Close()
		},
	}
	for suffix, do := range pack {
		var b bytes.Buffer
		do(&b)
		whole := b.Bytes()
		m := newMachine(t)
		m.write("/m/edu.ko"+suffix, string(whole))
		i, problem := openImage(m.h, "/m/edu.ko"+suffix)
		if problem != nil {
			t.Fatal(suffix, problem)
		}
		if i.buildID != edu().buildID {
			t.Errorf("%s: build-id %q", suffix, i.buildID)
		}
		i.close()
		m.write("/m/edu.ko"+suffix, string(whole[:len(whole)/2]))
		if _, problem := openImage(m.h, "/m/edu.ko"+suffix); problem == nil || problem.Reason != accel.ModuleInvalid {
			t.Errorf("half a %s: %v", suffix, problem)
		}
		var out bytes.Buffer
		if err := unpack(&out, bytes.NewReader(whole), "edu.ko"+suffix, 100); err == nil || out.Len() > 101 {
			t.Errorf("%s: a limit of 100 bytes gave %d bytes, error %v", suffix, out.Len(), err)
		}
	}
}

func TestInstalledOrder(t *testing.T) {
	m := newMachine(t)
	dir := "/lib/modules/" + testRelease
	m.write(dir+"/modules.dep", strings.Join([]string{
		"kernel/edu.ko.xz: kernel/b.ko kernel/a.ko",
		"updates/dkms/edu.ko: extra/c-d.ko.zst kernel/a.ko",
		"extra/edu.ko:",
		"extra/c-d.ko.zst: kernel/a.ko",
		"kernel/a.ko:", "not a line",
	}, "\n"))
	x := m.driver(Options{}).modulesOf(testRelease)
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

func TestCheckFile(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	m.write("/tmp/edu.ko", string(edu().bytes()))
	m.write("/tmp/other.ko", string(edu().bytes()))
	bad := edu()
	bad.vermagic = "1.0 SMP"
	m.write("/new/edu.ko", string(bad.bytes()))
	for name, want := range map[string]accel.Reason{"/tmp/edu.ko": "", "/tmp/other.ko": accel.ModuleInvalid, "/tmp/edu.txt": accel.ModuleInvalid, "/new/edu.ko": accel.KernelMismatch} {
		problem := d.CheckFile(eduDefinition(), m.facts(), name)
		if problem == nil && want != "" || problem != nil && problem.Reason != want {
			t.Errorf("%s: %v, want %q", name, problem, want)
		}
	}
	if len(m.loads) != 0 {
		t.Error(m.loads)
	}
}
