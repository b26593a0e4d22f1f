package driver

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

// TestVeto has a row for each way in which an administrator can forbid a module.
func TestVeto(t *testing.T) {
	for _, c := range []struct {
		name, file, cmdline, says string
	}{
		{"nothing", "", "quiet", ""},
		{"install false", "install edu /bin/false", "", "/etc/modprobe.d/x.conf:1"},
		{"install true", "install edu /usr/bin/true", "", "/etc/modprobe.d/x.conf:1"},
		{"install pattern", "install e?u /bin/false", "", "/etc/modprobe.d/x.conf:1"},
		{"install of another", "install other /bin/false", "", ""},
		{"install that does something", "install edu /sbin/modprobe --ignore-install edu && /bin/x", "", ""},
		{"the first install counts", "install edu /sbin/x\ninstall edu /bin/false", "", ""},
		{"blacklist", "blacklist edu", "", ""},
		{"modprobe.blacklist", "", "ro modprobe.blacklist=edu", ""},
		{"module_blacklist", "", "ro module_blacklist=a,edu quiet", "module_blacklist"},
		{"the last module_blacklist", "", "module_blacklist=edu module_blacklist=a", ""},
		{"for init", "", "-- module_blacklist=edu", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.Write("/etc/modprobe.d/x.conf", c.file+"\n")
			m.Write("/proc/cmdline", c.cmdline+"\n")
			m.Install("updates/edu.ko", ko.Edu())
			_, problem := m.driver(Options{}).Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs())
			if c.says == "" {
				if problem != nil {
					t.Fatal(problem)
				}
				return
			}
			if problem == nil || problem.Reason != accel.Blacklisted || !strings.Contains(problem.Message, c.says) {
				t.Fatal(problem)
			}
			if len(m.loads) != 0 {
				t.Error("the kernel was asked", m.loads)
			}
		})
	}
}

// TestParameterWords: the definition wins, and modprobe.d decides the rest. A parameter that the module does not have
// is refused if the definition sets it, and ignored if modprobe.d does.
func TestParameterWords(t *testing.T) {
	x := ko.Edu()
	x.Info = append(x.Info, "parmtype=flag:bool", "parmtype=list:array of int", "parmtype=text:charp")
	for _, c := range []struct {
		name, options, cmdline string
		definition             map[string]string
		want                   string // what the kernel gets, or part of the refusal
		reason                 accel.Reason
	}{
		{
			name: "definition wins", options: "options edu max-factorial=3 flag",
			definition: map[string]string{"max_factorial": "5"}, want: "flag=1 max_factorial=5",
		},
		{
			name: "command line after files", options: "options edu max_factorial=3",
			cmdline: `edu.max_factorial=4 edu.text="a b"`, want: `max_factorial=4 text="a b"`,
		},
		{name: "left out", options: "options edu gone=1 flag=0", want: "flag=0"},
		{name: "of another module", options: "options other flag=1", want: ""},
		{name: "unknown", definition: map[string]string{"typo": "1"}, want: "typo", reason: accel.ParameterUnknown},
		{
			name: "not a number", definition: map[string]string{"max_factorial": "many"}, want: "not a number",
			reason: accel.ParameterInvalid,
		},
		{
			name: "negative", definition: map[string]string{"max_factorial": "-1"}, want: "not a number",
			reason: accel.ParameterInvalid,
		},
		{
			name: "too large", definition: map[string]string{"max_factorial": "4294967296"}, want: "out of range",
			reason: accel.ParameterInvalid,
		},
		{
			name: "not a boolean", definition: map[string]string{"flag": "maybe"}, want: "not a boolean",
			reason: accel.ParameterInvalid,
		},
		{name: "an array", definition: map[string]string{"list": "1,-2,0x3"}, want: "list=1,-2,0x3"},
		{
			name: "a bad array", definition: map[string]string{"list": "1,,3"}, want: "not a number",
			reason: accel.ParameterInvalid,
		},
		{
			name: "the administrator's is bad", options: "options edu flag=7up", want: "/etc/modprobe.d/x.conf:1",
			reason: accel.ParameterInvalid,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.Write("/etc/modprobe.d/x.conf", c.options+"\n")
			m.Write("/proc/cmdline", c.cmdline)
			m.Install("updates/edu.ko", x)
			def := ko.Definition()
			def.Driver.Modules[0].Parameters = c.definition
			d := m.driver(Options{})
			v := d.sources.Verify(def, m.Facts())
			_, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
			if c.reason == "" {
				if problem != nil || v.Problem != nil || m.parameters["edu"] != c.want {
					t.Errorf("%v, %v, the kernel got %q, want %q", problem, v.Problem, m.parameters["edu"], c.want)
				}
				return
			}
			if problem == nil || problem.Reason != c.reason || !strings.Contains(problem.Message, c.want) ||
				len(m.loads) != 0 {
				t.Error(problem, m.loads)
			}
			if v.Problem == nil || v.Problem.Reason != c.reason {
				t.Error(v.Problem)
			}
		})
	}
}
