package kmod

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/test/ko"
)

func TestParseModprobe(t *testing.T) {
	text := strings.Join([]string{
		"# options commented out=1",
		"options edu-x a=1 \\", `  b="x y"`,
		"  blacklist\tnou-veau ",
		"install a-b[0-9-x] /bin/false",
		"alias char-major-1[0-9]-* some-thing",
		"softdep edu pre: a-b post: c",
		"remove edu /bin/true", "options lonely", "options", "", "include /x", "nonsense a b", "install\r",
	}, "\n")
	want := []rule{
		{"options", "edu_x", `a=1   b="x y"`, "a.conf", "/etc/modprobe.d/a.conf:2"},
		{"blacklist", "nou_veau", "", "a.conf", "/etc/modprobe.d/a.conf:4"},
		{"install", "a_b[0_9_x]", "/bin/false", "a.conf", "/etc/modprobe.d/a.conf:5"},
		{"alias", "char_major_1[0-9]_*", "some_thing", "a.conf", "/etc/modprobe.d/a.conf:6"},
		{"softdep", "edu", "pre: a-b post: c", "a.conf", "/etc/modprobe.d/a.conf:7"},
		{"remove", "edu", "/bin/true", "a.conf", "/etc/modprobe.d/a.conf:8"},
		{"options", "lonely", "", "a.conf", "/etc/modprobe.d/a.conf:9"},
	}
	if diff := cmp.Diff(want, parseModprobe("/etc/modprobe.d/a.conf", text), cmp.AllowUnexported(rule{})); diff != "" {
		t.Error(diff)
	}
}

// TestModprobeLikeKmod compares with the output of modprobe -c for the same file.
func TestModprobeLikeKmod(t *testing.T) {
	modprobe, err := exec.LookPath("modprobe")
	if err != nil {
		t.Skip("modprobe is not installed")
	}
	dir := t.TempDir()
	text := "options edu-x a=1 \\\n  b=\"x y\"\n#options no x=1\n  blacklist\tnou-veau \nalias cha-*[0-9]-x so-me\ninstall in-x exit 1\nremove re-x true\n"
	if err := os.WriteFile(filepath.Join(dir, "a.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), modprobe, "-C", dir, "-c").Output()
	if err != nil {
		t.Skipf("modprobe -c does not work here: %v", err)
	}
	dump, _, _ := strings.Cut(string(out), "# End of configuration files")
	for _, r := range parseModprobe("a.conf", text) {
		line := strings.TrimSpace(r.command + " " + r.name + " " + r.value)
		if !strings.Contains(strings.Join(strings.Fields(dump), " "), strings.Join(strings.Fields(line), " ")) {
			t.Errorf("modprobe does not say %q:\n%s", line, dump)
		}
	}
}

func TestSplitArguments(t *testing.T) {
	got := splitArguments(`a=1  b="x y" "c=u v" d e="" f="g`)
	want := []argument{
		{"a", "1", false},
		{"b", "x y", false},
		{"c", "u v", false},
		{"d", "", true},
		{"e", "", false},
		{"f", "g", false},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(argument{})); diff != "" {
		t.Error(diff)
	}
}

func TestParameterRefused(t *testing.T) {
	for _, c := range []struct {
		kind, value string
		good        bool
	}{
		{"int", "2147483647", true},
		{"int", "2147483648", false},
		{"int", "-2147483648", true},
		{"int", "-2147483649", false},
		{"int", "+5", true},
		{"int", "0x7f", true},
		{"int", "017", true},
		{"int", "08", false},
		{"int", "1_0", false},
		{"int", "", false},
		{"int", "0b1", false},
		{"int", " 1", false},
		{"int", "--1", false},
		{"int", "+-1", false},
		{"uint", "4294967295", true},
		{"uint", "-1", false},
		{"hexint", "0xffffffff", true},
		{"byte", "255", true},
		{"byte", "256", false},
		{"short", "-32768", true},
		{"ushort", "65536", false},
		{"ulong", "18446744073709551615", true},
		{"ulong", "18446744073709551616", false},
		{"long", "9223372036854775808", false},
		{"long", "-9223372036854775808", true},
		{"bool", "on", true},
		{"bool", "Y", true},
		{"bool", "0", true},
		{"bool", "", false},
		{"bool", "2", false},
		{"invbool", "n", true},
		{"charp", strings.Repeat("x", 1024), true},
		{"charp", strings.Repeat("x", 1025), false},
		{"charp", "", true},
		{"array of charp", "a,b", true},
		{"array of bool", "1,x", false},
		{"something of its own", "x", true},
		{"", "x", true},
	} {
		if why := parameterRefused(c.kind, c.value); (why == "") != c.good {
			t.Errorf("%s %.30q: %q", c.kind, c.value, why)
		}
	}
}

func FuzzModprobe(f *testing.F) {
	f.Add("options edu a=1 \\\n b=\"x\ninstall [ /bin/false\nsoftdep edu pre: post:\nalias a[ b\n")
	f.Fuzz(func(_ *testing.T, text string) {
		m := &modprobe{rules: parseModprobe("x.conf", text)}
		m.readCommandLine(text)
		_ = m.merge("edu", map[string]string{"a": "1"})
		_ = m.veto("edu")
		_ = m.remarks("edu")
		_ = m.alias("edu")
		_, _ = m.soft("edu", &Info{})
	})
}

// TestModprobeOrder: a file hides files of the same name in later directories, and all are read in order of their
// names.
func TestModprobeOrder(t *testing.T) {
	m := ko.NewMachine(t)
	m.Write("/lib/modprobe.d/b.conf", "options edu from=lib\n")
	m.Write("/usr/lib/modprobe.d/b.conf", "options edu from=usr\n")
	m.Write("/usr/local/lib/modprobe.d/c.conf", "options edu from=local other=1\n")
	m.Write("/run/modprobe.d/b.conf", "options edu from=run\n")
	m.Write("/etc/modprobe.d/a.conf", "options edu from=etc\n")
	m.Write("/etc/modprobe.d/z.bak", "options edu from=backup\n")
	m.Write("/etc/modprobe.d/.z.conf", "options edu from=hidden\n")
	m.Write("/usr/lib/modprobe.d/masked.conf", "install edu /bin/false\n")
	if err := os.Symlink("/dev/null", m.Path("/etc/modprobe.d/masked.conf")); err != nil {
		t.Fatal(err)
	}
	m.Write("/dev/null", "")
	got := readModprobe(m.Host)
	var from []string
	for _, r := range got.rules {
		from = append(from, r.from)
	}
	want := []string{"/etc/modprobe.d/a.conf:1", "/run/modprobe.d/b.conf:1", "/usr/local/lib/modprobe.d/c.conf:1"}
	if diff := cmp.Diff(want, from); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Parameter{
		{"from", "local", "/usr/local/lib/modprobe.d/c.conf:1"},
		{"other", "1", "/usr/local/lib/modprobe.d/c.conf:1"},
	}, got.merge("edu", nil)); diff != "" {
		t.Error(diff)
	}
}
