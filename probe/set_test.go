package probe

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// sets is a program with one setting, which it changes when it is asked.
const sets50 = hello + `
tell() { echo '{"snapshot":{"devices":[{"id":"0000:01:00.0","model":"NPU 9","settings":{"limit":{"value":"'$1'","max":"90"}}},{"id":"0000:02:00.0","model":"NPU 9"}]}}'; }
tell 50
(while sleep 0.2; do echo '{}'; done) &
trap 'kill $!' EXIT
while read -r line; do
  value=$(echo "$line" | sed 's/.*"value":"\([0-9]*\)".*/\1/')
  problem=
  case $line in
  *'"setting":"limit"'*) if [ "$value" -gt 90 ]; then problem=',"problem":"too much"'; else tell "$value"; fi ;;
  *) problem=',"unsupported":true' ;;
  esac
  name=$(echo "$line" | sed 's/.*"setting":"\([a-z]*\)".*/\1/')
  echo '{"set":{"device":"0000:01:00.0","setting":"other","value":"9"}}'
  echo '{"set":{"device":"0000:01:00.0","setting":"'$name'","value":"'$value'"'$problem'}}'
done
`

// TestSet: a program is asked to set something, and its answer comes after a report with the outcome.
func TestSet(t *testing.T) {
	b := newBench(t, sets50)
	kind := b.def.Kind
	if _, known, why := b.k.Settings(kind, one); known || why != "" {
		t.Errorf("before it has run: %t, %q", known, why)
	}
	b.until("known", model)
	all, known, _ := b.k.Settings(kind, one)
	if diff := cmp.Diff(map[string]accel.ProbeSetting{"limit": {Value: "50", Max: "90"}}, all); !known || diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if all, known, _ := b.k.Settings(kind, two); !known || len(all) != 0 {
		t.Errorf("the other device: %v, %t", all, known)
	}
	for _, c := range []struct {
		setting, value, problem string
		unsupported             bool
		after                   string
	}{
		{"limit", "80", "", false, "80"},
		{"limit", "91", "too much", false, "80"},
		{"power", "7", "the device does not support it", true, "80"},
	} {
		r := accel.ProbeSet{Device: one, Setting: c.setting, Value: c.value}
		got := b.k.Set(t.Context(), kind, r)
		r.Problem, r.Unsupported = c.problem, c.unsupported
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if all, _, _ := b.k.Settings(kind, one); all["limit"].Value != c.after {
			t.Errorf("after %+v it is %+v", r, all)
		}
	}
	b.stop()
	if got := b.k.Set(t.Context(), kind, accel.ProbeSet{Device: one}); got.Problem != "no program runs" {
		t.Errorf("no program: %+v", got)
	}
	if got := b.k.Set(t.Context(), "other-kind", accel.ProbeSet{Device: one}); got.Problem != "no program runs" {
		t.Errorf("no such kind: %+v", got)
	}
}

// TestSetWithoutAnswer: who asks does not wait longer than it likes.
func TestSetWithoutAnswer(t *testing.T) {
	b := newBench(t, hello+both+stays)
	b.until("known", model)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if got := b.k.Set(ctx, b.def.Kind, accel.ProbeSet{Device: one, Setting: "a", Value: "1"}); got.Problem == "" {
		t.Errorf("%+v", got)
	}
}

// TestSettingsWhy: why a program reports nothing is said with its settings.
func TestSettingsWhy(t *testing.T) {
	for name, c := range map[string]struct{ script, why string }{
		"absent":  {hello + `echo '{"absent":"no library"}'` + "\n", "no library"},
		"problem": {hello + `echo '{"problem":{"reason":"LibraryMismatch","message":"of another version"}}'` + "\n" + stays, "of another version"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.script)
			b.until("said", func([]accel.Accelerator) bool {
				_, known, why := b.k.Settings(b.def.Kind, one)
				return !known && strings.HasSuffix(why, c.why)
			})
		})
	}
}

// TestReportedSettings: names and values that are none are left out.
func TestReportedSettings(t *testing.T) {
	all := map[string]accel.ProbeSetting{
		"good": {Value: "1", Pending: "2", Min: "0", Max: "3"}, "../bad": {Value: "1"}, "lines": {Value: "1\n2"},
		"pending": {Pending: "\x1b"}, "bound": {Max: strings.Repeat("9", 65)}, "none": {},
	}
	want := map[string]accel.ProbeSetting{"good": all["good"], "none": {}}
	if diff := cmp.Diff(want, settings(all)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	many := map[string]accel.ProbeSetting{}
	for i := range 3 * maxSettings {
		many["s"+strings.Repeat("x", i%60)+string(rune('a'+i/60))] = accel.ProbeSetting{}
	}
	if got := settings(many); len(got) != maxSettings || !cmp.Equal(got, settings(many)) {
		t.Errorf("%d of %d", len(got), len(many))
	}
}

// TestAnsweredSets: an answer to another request, or to none, is passed on to nobody.
func TestAnsweredSets(t *testing.T) {
	s := &sets{}
	s.answered(accel.ProbeSet{Device: one})
	answer := make(chan accel.ProbeSet, 1)
	asked := accel.ProbeSet{Device: one, Setting: "a", Value: "1"}
	s.ask(asked, answer)
	for _, other := range []accel.ProbeSet{
		{Device: two, Setting: "a", Value: "1"}, {Device: one, Setting: "b", Value: "1"}, {Device: one, Setting: "a", Value: "2"},
	} {
		s.answered(other)
	}
	if len(answer) != 0 {
		t.Fatal("another answer was taken")
	}
	s.answered(asked)
	s.answered(asked) // once more, for nobody
	if got := <-answer; got != asked {
		t.Errorf("%+v", got)
	}
}

// TestSession: a command runs the program by itself.
func TestSession(t *testing.T) {
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, dir: t.TempDir()}
	start := func(script string) (*Session, error) {
		return Start(t.Context(), h, b.dir, &accel.Definition{Probe: &accel.Probe{Argv: []string{b.script(script)}}})
	}
	s, err := start(sets50)
	if err != nil {
		t.Fatal(err)
	}
	if all, known := s.Settings(one); !known || all["limit"].Value != "50" {
		t.Errorf("%v, %t", all, known)
	}
	if _, known := s.Settings("0000:09:00.0"); known {
		t.Error("it knows a device that there is not")
	}
	if err := s.Set(t.Context(), accel.ProbeSet{Device: one, Setting: "limit", Value: "70"}); err != nil {
		t.Error(err)
	}
	if all, _ := s.Settings(one); all["limit"].Value != "70" {
		t.Errorf("%v", all)
	}
	if err := s.Set(t.Context(), accel.ProbeSet{Device: one, Setting: "limit", Value: "99"}); err == nil || err.Error() != "too much" {
		t.Error(err)
	}
	s.Close()
	for name, c := range map[string]struct{ script, want string }{
		"it ends":        {hello, "it has ended"},
		"nonsense":       {"echo nonsense\n", "a line cannot be read"},
		"another tongue": {`echo '{"hello":{"protocol":2}}'` + "\n", "version 2"},
		"absent":         {hello + `echo '{"absent":"no library"}'` + "\n", "no library"},
	} {
		if s, err := start(c.script); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

// FuzzLine: whatever a program writes ends it, or is taken in known terms.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"snapshot":{"devices":[{"id":"0000:01:00.0","settings":{"limit":{"value":"50\n","max":"x"}}}]}}`))
	f.Add([]byte(`{"set":{"device":"0000:01:00.0","setting":"limit","value":"1","problem":"\u001b"}}`))
	f.Add([]byte(`{"processes":{"0000:01:00.0":[{"pid":7,"memoryBytes":-1,"engineSeconds":{"\u001b":1,"compute":1e300}},{"pid":-7}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		def := &accel.Definition{Kind: "example-npu", Probe: &accel.Probe{Argv: []string{"watcher"}}}
		p := newProgram(Options{
			Log: slog.New(slog.DiscardHandler), Changed: func() {}, Fault: func(*accel.Definition, accel.ProbeFault) {},
		}, def)
		p.want(def, []string{one})
		introduced := true
		if p.take(def, []string{one}, text, &introduced) != nil {
			return
		}
		all, _, _ := p.book.settingsOf(one)
		for name, s := range all {
			if !accel.SettingName(name) || s.Value != "" && !accel.SettingText(s.Value) {
				t.Errorf("%q is %+v", name, s)
			}
		}
		if _, err := json.Marshal(all); err != nil {
			t.Error(err)
		}
		for _, list := range p.book.processesNow() {
			for _, x := range list {
				for name, n := range x.EngineSeconds {
					if !accel.UsageWord(name) || !(n >= 0 && n < 1e10) {
						t.Errorf("%q is %v", name, n)
					}
				}
				if x.PID <= 0 || x.MemoryBytes.Value < 0 || len(x.EngineSeconds) > accel.MaxEngines {
					t.Errorf("%+v", x)
				}
			}
		}
	})
}
