package driver

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/ko"
	"github.com/acceld/acceld/test/ko/signed"
)

// TestVerify has a row for each defect of a module file. Each has its own reason, found without calling the kernel.
func TestVerify(t *testing.T) {
	with := func(change func(*ko.Module)) ko.Module {
		x := ko.Edu()
		change(&x)
		return x
	}
	same := func(*accel.Facts) {}
	for _, c := range []struct {
		name       string
		module     ko.Module
		facts      func(*accel.Facts)
		parameters map[string]string
		want       accel.Reason
	}{
		{"good", ko.Edu(), same, map[string]string{"fail_probe": "0"}, ""},
		{"architecture", with(func(x *ko.Module) { x.Machine = elf.EM_AARCH64 }), same, nil, accel.ArchMismatch},
		{
			"release", with(func(x *ko.Module) { x.Vermagic = "6.1.1-test " + ko.Flags }), same, nil,
			accel.KernelMismatch,
		},
		{
			"flags", with(func(x *ko.Module) { x.Vermagic = ko.Release + " SMP mod_unload modversions" }), same, nil,
			accel.KernelMismatch,
		},
		{"no vermagic", with(func(x *ko.Module) { x.Vermagic = " " }), same, nil, accel.KernelMismatch},
		{"name", with(func(x *ko.Module) { x.Name = "other" }), same, nil, accel.ModuleInvalid},
		{"parameter", ko.Edu(), same, map[string]string{"typo": "1"}, accel.ParameterUnknown},
		{
			"layout", with(func(x *ko.Module) { x.CRCs = map[string]uint32{"module_layout": 2} }), same, nil,
			accel.SymbolMismatch,
		},
		{"crc", with(func(x *ko.Module) {
			x.CRCs = map[string]uint32{"module_layout": 1, "printk": 9}
			x.Undefined = []string{"printk"}
		}), same, nil, accel.SymbolMismatch},
		{"good crc", with(func(x *ko.Module) {
			x.CRCs = map[string]uint32{"module_layout": 1, "printk": 3}
			x.Undefined = []string{"printk"}
		}), same, nil, ""},
		{"symbol", with(func(x *ko.Module) { x.Undefined = []string{"gone"} }), same, nil, accel.SymbolMissing},
		{"symbol of a live module", with(func(x *ko.Module) { x.Undefined = []string{"of_live"} }), same, nil, ""},
		{
			"namespace", with(func(x *ko.Module) { x.Undefined = []string{"dma_buf_get"} }), same, nil,
			accel.SymbolMissing,
		},
		{"another namespace", with(func(x *ko.Module) {
			x.Undefined, x.Info = []string{"dma_buf_get"}, []string{"import_ns=CXL"}
		}), same, nil, accel.SymbolMissing},
		{"imported namespace", with(func(x *ko.Module) {
			x.Undefined, x.Info = []string{"dma_buf_get"}, []string{"import_ns=CXL", "import_ns=DMA_BUF"}
		}), same, nil, ""},
		{
			"for another module", with(func(x *ko.Module) { x.Undefined = []string{"for_kvm"} }), same, nil,
			accel.SymbolMissing,
		},
		{"for this module", with(func(x *ko.Module) { x.Undefined = []string{"for_ed"} }), same, nil, ""},
		{"unsigned", ko.Edu(), func(f *accel.Facts) { f.Kernel.SigEnforce = true }, nil, accel.Unsigned},
		{"signed", with(func(x *ko.Module) { x.Signature = signed.BySomebody(t, "sha256") }), func(f *accel.Facts) {
			f.Kernel.SigEnforce = true
		}, nil, ""},
		{"lockdown", ko.Edu(), func(f *accel.Facts) { f.Kernel.Lockdown = "integrity" }, nil, accel.LockedDown},
		{"no lockdown", ko.Edu(), func(f *accel.Facts) { f.Kernel.Lockdown = "none" }, nil, ""},
		{"modules disabled", ko.Edu(), func(f *accel.Facts) {
			f.Kernel.ModulesDisabled = true
		}, nil, accel.ModulesDisabled},
		{
			"dependency", with(func(x *ko.Module) { x.Info = append(x.Info, "depends=nowhere") }), same, nil,
			accel.DependencyMissing,
		},
		{
			"builtin dependency", with(func(x *ko.Module) { x.Info = append(x.Info, "depends=builtinfs") }), same,
			map[string]string{"fail_probe": "0"},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.Install("kernel/own.ko", ko.Module{Name: "own"})
			m.Write("/lib/modules/"+ko.Release+"/build/.config",
				"# CONFIG_MODULE_ALLOW_MISSING_NAMESPACE_IMPORTS is not set\n")
			m.Write("/lib/modules/"+ko.Release+"/build/Module.symvers",
				`0x00000001	module_layout	vmlinux	EXPORT_SYMBOL	
0x00000003	printk	vmlinux	EXPORT_SYMBOL	
0x00000004	dma_buf_get	vmlinux	EXPORT_SYMBOL	DMA_BUF
0x00000005	for_kvm	vmlinux	EXPORT_SYMBOL	module:kvm-intel,kvm-amd
0x00000006	for_ed	vmlinux	EXPORT_SYMBOL	module:kvm,ed*
`)
			m.Write("/proc/kallsyms", "0000000000000000 T startup\n0000000000000000 r __ksymtab_of_live\t[live]\n")
			m.Install("updates/edu.ko", c.module)
			// The file name says edu, whatever the module inside says.
			def := ko.Definition()
			def.Driver.Modules[0].Parameters = c.parameters
			facts := m.Facts()
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
	x := ko.Edu()
	x.Undefined, x.CRCs, x.Vermagic = []string{"gone"}, map[string]uint32{"module_layout": 5}, ko.Release+" odd flags"
	m.Install("updates/edu.ko", x)
	if _, problem := m.driver(Options{}).Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
}

func TestFirmware(t *testing.T) {
	m := newMachine(t)
	m.Install("updates/edu.ko", ko.Edu())
	def := ko.Definition()
	def.Driver.Modules[0].Firmware = []string{"edu/fw.bin"}
	d := m.driver(Options{})
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.FirmwareMissing {
		t.Fatal(problem)
	}
	m.Write("/lib/firmware/edu/fw.bin.zst", "x")
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
}

func TestCompressed(t *testing.T) {
	plain := ko.Edu().Bytes()
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
		m.Write("/m/edu.ko"+suffix, string(whole))
		i, problem := kmod.Open(m.Host, "/m/edu.ko"+suffix)
		if problem != nil {
			t.Fatal(suffix, problem)
		}
		if i.BuildID != ko.Edu().BuildID {
			t.Errorf("%s: build-id %q", suffix, i.BuildID)
		}
		i.Close()
		m.Write("/m/edu.ko"+suffix, string(whole[:len(whole)/2]))
		if _, problem := kmod.Open(m.Host, "/m/edu.ko"+suffix); problem == nil ||
			problem.Reason != accel.ModuleInvalid {
			t.Errorf("half a %s: %v", suffix, problem)
		}
		var out bytes.Buffer
		if err := kmod.Unpack(&out, bytes.NewReader(whole), "edu.ko"+suffix, 100); err == nil || out.Len() > 101 {
			t.Errorf("%s: a limit of 100 bytes gave %d bytes, error %v", suffix, out.Len(), err)
		}
	}
}

func TestVerifyFile(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	m.Write("/tmp/edu.ko", string(ko.Edu().Bytes()))
	m.Write("/tmp/other.ko", string(ko.Edu().Bytes()))
	bad := ko.Edu()
	bad.Vermagic = "1.0 SMP"
	m.Write("/new/edu.ko", string(bad.Bytes()))
	for name, want := range map[string]accel.Reason{
		"/tmp/edu.ko": "", "/tmp/other.ko": accel.ModuleInvalid,
		"/tmp/edu.txt": accel.ModuleInvalid, "/new/edu.ko": accel.KernelMismatch,
	} {
		problem := d.sources.VerifyFiles(ko.Definition(), m.Facts(), []string{name}).Problem
		if problem == nil && want != "" || problem != nil && problem.Reason != want {
			t.Errorf("%s: %v, want %q", name, problem, want)
		}
	}
	if len(m.loads) != 0 {
		t.Error(m.loads)
	}
}

// TestSymbolVersions has a row for each origin of the kernel's symbol versions.
func TestSymbolVersions(t *testing.T) {
	const line = "0x00000001\tmodule_layout\tvmlinux\tEXPORT_SYMBOL\t\n0x00000003\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n0x00000007\tof_gpl\tvmlinux\tEXPORT_SYMBOL_GPL\t\n0x00000008\tof_peer\tdrivers/peer\tEXPORT_SYMBOL\t\n"
	gz := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return b.String()
	}
	wants := func(crcs map[string]uint32, info ...string) ko.Module {
		x := ko.Edu()
		x.CRCs, x.Info = crcs, append(x.Info, info...)
		for name := range crcs {
			if name != "module_layout" {
				x.Undefined = append(x.Undefined, name)
			}
		}
		return x
	}
	for _, c := range []struct {
		name    string
		module  ko.Module
		prepare func(*testMachine)
		kabi    string
		want    accel.Reason
	}{
		{"symvers.gz of the kernel", wants(map[string]uint32{"module_layout": 1, "printk": 9}), func(m *testMachine) {
			m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
		}, "", accel.SymbolMismatch},
		{"symvers.gz in /boot", wants(map[string]uint32{"module_layout": 9}), func(m *testMachine) {
			m.Write("/boot/symvers-"+ko.Release+".gz", gz(line))
		}, "", accel.SymbolMismatch},
		{"a damaged symvers.gz", wants(map[string]uint32{"module_layout": 9}), func(m *testMachine) {
			m.Write("/lib/modules/"+ko.Release+"/symvers.gz", "no")
		}, "", ""},
		{"no versions at all", wants(map[string]uint32{}), func(*testMachine) {}, "", accel.SymbolMismatch},
		{"for compatible licences alone", wants(map[string]uint32{"module_layout": 1, "of_gpl": 7}, "license=Own",
			"license=GPL"), func(m *testMachine) {
			m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
		}, "", accel.SymbolMissing},
		{
			"a compatible licence", wants(map[string]uint32{"module_layout": 1, "of_gpl": 7}, "license=Dual MIT/GPL"),
			func(m *testMachine) {
				m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
			}, "", "",
		},
		{
			"a module of the kernel's own", wants(map[string]uint32{"module_layout": 1, "of_peer": 9}),
			func(m *testMachine) {
				m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
				m.Install("kernel/drivers/peer.ko", ko.Module{Name: "peer"})
			}, "", accel.SymbolMismatch,
		},
		{
			"a module that a vendor replaced", wants(map[string]uint32{"module_layout": 1, "of_peer": 9}),
			func(m *testMachine) {
				m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
				m.Install("updates/peer.ko", ko.Module{Name: "peer"})
			}, "", "",
		},
		{
			"weak and not asked for", ofRelease(wants(map[string]uint32{"module_layout": 1, "printk": 3}), "6.1.0-old"),
			func(m *testMachine) {
				m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
			}, "", accel.KernelMismatch,
		},
		{
			"weak", ofRelease(wants(map[string]uint32{"module_layout": 1, "printk": 3}), "6.1.0-old"),
			func(m *testMachine) {
				m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
			}, "weak", "",
		},
		{
			"weak with another version", ofRelease(wants(map[string]uint32{"module_layout": 1, "printk": 4}),
				"6.1.0-old"),
			func(m *testMachine) {
				m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
			}, "weak", accel.KernelMismatch,
		},
		{
			"weak with another layout", ofRelease(wants(map[string]uint32{"module_layout": 2, "printk": 3}),
				"6.1.0-old"),
			func(m *testMachine) {
				m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
			}, "weak", accel.KernelMismatch,
		},
		{
			"weak with an unknown symbol", ofRelease(wants(map[string]uint32{"module_layout": 1, "gone": 3}),
				"6.1.0-old"),
			func(m *testMachine) {
				m.Write("/lib/modules/"+ko.Release+"/symvers.gz", gz(line))
			}, "weak", accel.KernelMismatch,
		},
		{
			"weak and nothing to compare", ofRelease(wants(map[string]uint32{"module_layout": 1}), "6.1.0-old"),
			func(*testMachine) {}, "weak", accel.KernelMismatch,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			c.prepare(m)
			m.Install("updates/edu.ko", c.module)
			def := ko.Definition()
			def.Driver.KABI = c.kabi
			_, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
			if c.want == "" && problem != nil || c.want != "" && (problem == nil || problem.Reason != c.want ||
				len(m.loads) > 0) {
				t.Error(problem, m.loads)
			}
		})
	}
}

// ofRelease is a module of another release of the kernel.
func ofRelease(x ko.Module, release string) ko.Module {
	x.Vermagic = release + " " + ko.Flags
	return x
}

// TestGraph has a row for each shape of dependencies between modules.
func TestGraph(t *testing.T) {
	module := func(name string, info ...string) ko.Module { return ko.Module{Name: name, BuildID: "aa", Info: info} }
	for _, c := range []struct {
		name    string
		files   []ko.Module // below updates, in modules.dep without dependencies
		modules []accel.Module
		rules   string
		loads   string
		want    accel.Reason
	}{
		{
			"the definition's order",
			[]ko.Module{module("b"), ko.Edu()},
			[]accel.Module{{Name: "b"}, {Name: "edu"}},
			"",
			"b edu", "",
		},
		{
			"a wrong order",
			[]ko.Module{module("a"), module("b", "depends=a"), ko.Edu()},
			[]accel.Module{{Name: "b"}, {Name: "edu"}, {Name: "a"}},
			"", "a b edu", "",
		},
		{
			"a diamond",
			[]ko.Module{
				module("a"), module("b", "depends=a"), module("c", "depends=a"),
				{Name: "edu", Info: []string{"depends=b,c"}},
			},
			[]accel.Module{{Name: "edu"}, {Name: "c"}, {Name: "b"}, {Name: "a"}},
			"", "a b c edu", "",
		},
		{
			"a circle",
			[]ko.Module{module("a", "depends=b"), module("b", "depends=a"), ko.Edu()},
			[]accel.Module{{Name: "a"}, {Name: "b"}, {Name: "edu"}},
			"", "", accel.DefinitionInvalid,
		},
		{
			"a circle through after",
			[]ko.Module{module("a", "depends=edu"), ko.Edu()},
			[]accel.Module{{Name: "a"}, {Name: "edu", After: []string{"a"}}},
			"", "", accel.DefinitionInvalid,
		},
		{
			"itself",
			[]ko.Module{module("edu", "depends=edu")},
			[]accel.Module{{Name: "edu"}},
			"", "",
			accel.DefinitionInvalid,
		},
		{
			"an optional one that is bad",
			[]ko.Module{{Name: "a", Vermagic: "1.0 SMP"}, ko.Edu()},
			[]accel.Module{{Name: "a", Optional: true}, {Name: "edu"}},
			"", "edu", "",
		},
		{
			"what needs an optional one that is bad",
			[]ko.Module{{Name: "a", Vermagic: "1.0 SMP"}, {Name: "edu", Info: []string{"depends=a"}}},
			[]accel.Module{{Name: "a", Optional: true}, {Name: "edu"}},
			"", "", accel.DependencyMissing,
		},
		{
			"an optional one that needs it",
			[]ko.Module{{Name: "a", Vermagic: "1.0 SMP"}, module("b", "depends=a"), ko.Edu()},
			[]accel.Module{{Name: "a", Optional: true}, {Name: "b", Optional: true}, {Name: "edu"}},
			"", "edu", "",
		},
		{
			"a soft one before and one after",
			[]ko.Module{
				module("s"), module("p"),
				{Name: "edu", Info: []string{"softdep=pre: s gone post: p"}},
			},
			[]accel.Module{{Name: "edu"}},
			"", "s edu p",
			"",
		},
		{"a soft one that is bad", []ko.Module{
			{Name: "s", Vermagic: "1.0 SMP"},
			{Name: "edu", Info: []string{"softdep=pre: s"}},
		}, []accel.Module{{Name: "edu"}}, "", "edu", ""},
		{
			"the administrator's soft one",
			[]ko.Module{
				module("s"), module("t"),
				{Name: "edu", Info: []string{"softdep=pre: s"}},
			},
			[]accel.Module{{Name: "edu"}},
			"softdep edu pre: t",
			"t edu", "",
		},
		{
			"an alias of the administrator",
			[]ko.Module{module("edu_current"), ko.Edu()},
			[]accel.Module{{Name: "edu", After: []string{"other"}}},
			"alias other edu-current", "edu_current edu", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			for _, f := range c.files {
				m.Install("updates/"+f.Name+".ko", f)
			}
			m.Write("/etc/modprobe.d/a.conf", c.rules+"\n")
			def := ko.Definition()
			def.Driver.Modules = c.modules
			d := m.driver(Options{})
			v := d.sources.Verify(def, m.Facts())
			_, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
			if c.want == "" && (problem != nil || v.Problem != nil) || c.want != "" &&
				(problem == nil || problem.Reason != c.want || v.Problem == nil || v.Problem.Reason != c.want) {
				t.Error(problem, v.Problem)
			}
			if got := strings.Join(m.loads, " "); got != c.loads {
				t.Errorf("loaded %q, want %q", got, c.loads)
			}
		})
	}
}

// TestVerifyShowsEverything: one defect does not hide another, and the origin of each parameter is visible.
func TestVerifyShowsEverything(t *testing.T) {
	m := newMachine(t)
	x := ko.Edu()
	x.Vermagic, x.Info = "1.0 SMP", append(x.Info, "depends=nowhere")
	m.Install("updates/edu.ko", x)
	m.Write("/etc/modprobe.d/a.conf", "options edu max_factorial=3 fail_probe=1\n")
	def := ko.Definition()
	def.Driver.Modules[0].Parameters = map[string]string{"fail_probe": "0"}
	facts := m.Facts()
	facts.Kernel.SigEnforce = true
	v := m.driver(Options{}).sources.Verify(def, facts)
	got := map[string]accel.Reason{}
	detail := ""
	for _, c := range v.Modules[0].Checks {
		if c.Problem != nil {
			got[c.Name] = c.Problem.Reason
		}
		if c.Name == "parameters" {
			detail = c.Detail
		}
	}
	want := map[string]accel.Reason{
		"dependencies": accel.DependencyMissing, "vermagic": accel.KernelMismatch,
		"signature": accel.Unsigned,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if detail != "fail_probe=0 (definition); max_factorial=3 (/etc/modprobe.d/a.conf:1)" {
		t.Error(detail)
	}
	if len(m.loads) > 0 || v.Problem == nil {
		t.Error(m.loads, v.Problem)
	}
}

// TestVerifyRemembers: a later check that passes does not hide an earlier problem.
func TestVerifyRemembers(t *testing.T) {
	m := newMachine(t)
	x := ko.Edu()
	x.Vermagic = "1.0 SMP"
	m.Install("updates/edu.ko", x)
	if v := m.driver(Options{}).sources.Verify(ko.Definition(), m.Facts()); v.Problem == nil ||
		v.Problem.Reason != accel.KernelMismatch {
		t.Errorf("%+v", v)
	}
}

// TestRealModule is injection 10 on a real module file: unchanged, it passes; each change of its bytes is refused
// with its own reason, without calling the kernel.
func TestRealModule(t *testing.T) {
	found, _ := filepath.Glob("/lib/modules/*/kernel/drivers/gpu/drm/drm.ko*")
	if len(found) == 0 {
		t.Skip("no kernel with its modules is installed")
	}
	release := strings.Split(found[0], "/")[3]
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	image, problem := kmod.Open(h, found[0])
	if problem != nil {
		t.Fatal(problem)
	}
	defer image.Close()
	whole, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", image.Content.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	d := New(h, Options{StateDir: t.TempDir()})
	replaced := func(old, by string) []byte { return bytes.ReplaceAll(whole, []byte(old), []byte(by)) }
	next := []byte(release)
	next[len(next)-1]++
	crc := binary.LittleEndian.AppendUint64(nil, uint64(image.CRCs["module_layout"]))
	crc = append(crc, "module_layout\x00"...)
	wrong := bytes.Clone(crc)
	wrong[0]++
	arch := bytes.Clone(whole)
	arch[18] = byte(elf.EM_AARCH64)
	const signatureMagic = "~Module signature appended~\n"
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-len(signatureMagic)-3]++ // the size of the signature
	for name, c := range map[string]struct {
		bytes []byte
		want  accel.Reason
	}{
		"as it is":    {whole, ""},
		"vermagic":    {replaced("vermagic="+release, "vermagic="+string(next)), accel.KernelMismatch},
		"a CRC":       {replaced(string(crc), string(wrong)), accel.SymbolMismatch},
		"truncated":   {whole[:len(whole)/2], accel.ModuleInvalid},
		"wrong arch":  {arch, accel.ArchMismatch},
		"a signature": {damaged, accel.ModuleInvalid},
		"wrong key": {
			replaced("Build time autogenerated kernel key", "Build time autogenerated kernel keX"),
			accel.KeyUnknown,
		},
		"unsigned": {bytes.TrimSuffix(whole, []byte(signatureMagic)), accel.Unsigned},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "drm.ko")
			if err := os.WriteFile(file, c.bytes, 0o600); err != nil {
				t.Fatal(err)
			}
			facts := accel.Facts{Kernel: accel.Kernel{
				Release: release, Arch: "x86_64",
				SigEnforce: image.Signature != nil,
			}}
			if c.want == accel.Unsigned && image.Signature == nil || c.want == accel.KeyUnknown &&
				image.Signature == nil {
				t.Skip("the kernel's modules are not signed")
			}
			if keys, err := os.ReadFile("/proc/keys"); (err != nil ||
				!bytes.Contains(keys, []byte(".builtin_trusted_keys"))) && c.want == accel.KeyUnknown ||
				name != "as it is" && bytes.Equal(c.bytes, whole) {
				t.Skip("the machine does not show its keyrings, or the module is signed by another name")
			}
			v := d.sources.VerifyFiles(nil, facts, []string{file})
			if c.want == "" && v.Problem != nil || c.want != "" && (v.Problem == nil || v.Problem.Reason != c.want) {
				t.Errorf("%+v", v.Problem)
			}
		})
	}
}

// TestVerifyOtherKernel: the running kernel's symbols and modules say nothing about a kernel that is not running.
func TestVerifyOtherKernel(t *testing.T) {
	m := newMachine(t)
	m.Write("/proc/kallsyms", "0000000000000000 T startup\n")
	x := ko.Edu()
	x.Undefined = []string{"printk"}
	m.Live(ko.Module{Name: "base"})
	d := m.driver(Options{})
	m.Install("updates/edu.ko", x)
	facts := m.Facts()
	facts.Kernel.NotRunning = true
	if v := d.sources.Verify(ko.Definition(), facts); v.Problem != nil {
		t.Errorf("%+v", v)
	}
	x.Info = append(x.Info, "depends=base")
	m.Install("updates/edu.ko", x)
	if v := d.sources.Verify(ko.Definition(), facts); v.Problem == nil || v.Problem.Reason != accel.DependencyMissing {
		t.Errorf("%+v", v)
	}
}
