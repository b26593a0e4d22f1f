package settings

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

const (
	one   = "0000:01:00.0"
	bound = 7
)

// limit is a number from 1 to 100.
func limit(value accel.SettingValue) accel.Setting {
	low, high := 1.0, 100.0
	return accel.Setting{Name: "limit", File: "limit", Min: &low, Max: &high, Value: value}
}

// mode is a word that needs an idle device.
func mode(value accel.SettingValue) accel.Setting {
	return accel.Setting{
		Name: "mode", Values: map[string]string{"shared": "0", "exclusive": "3"}, Needs: accel.SettingNeedsIdle, Value: value,
	}
}

func text(s string) *string { return &s }

// was is a record of a setting that had another value before.
func was(before string, done bool, ours ...string) *Record {
	return &Record{
		Kind: "a-b", Address: one, Setting: "limit", File: "limit", Before: text(before), Ours: ours, Done: done, Binding: bound,
	}
}

// with changes a record.
func (r *Record) with(change func(*Record)) *Record { change(r); return r }

func rebound(r *Record) { r.Binding = bound - 1 }

func TestDecide(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		Case
		do     Do
		writes string
		// record is what is noted first, as "before <- ours, ours"; "-" for nothing
		record string
		state  accel.SettingState
		says   string
		hold   bool
		drift  bool
	}{
		"nothing was ever set": {Case{Setting: limit(""), Read: Reading{Text: "50"}}, Nothing, "", "-", "", "", false, false},
		"as configured already": {
			Case{Setting: limit("80"), Read: Reading{Text: "80"}},
			Nothing, "", "-", accel.SettingApplied, "limit is 80", false,
			false,
		},
		"the first write": {
			Case{Setting: limit("80"), Read: Reading{Text: "50"}}, Write, "80", "50 <- 80", accel.SettingWaits, "", false, false,
		},
		"written and seen": {
			Case{Setting: limit("80"), Read: Reading{Text: "80"}, Record: was("50", false, "80")},
			Confirm, "", "50 <- 80 done",
			accel.SettingApplied, "limit is 80", false, false,
		},
		"on record": {
			Case{Setting: limit("80"), Read: Reading{Text: "80"}, Record: was("50", true, "80")},
			Nothing, "", "-",
			accel.SettingApplied, "", false, false,
		},
		"killed before the write": {
			Case{Setting: limit("80"), Read: Reading{Text: "50"}, Record: was("50", false, "80")},
			Write, "80", "50 <- 80",
			accel.SettingWaits, "", false, false,
		},
		"another value is configured": {
			Case{Setting: limit("70"), Read: Reading{Text: "80"}, Record: was("50", true, "80")},
			Write, "70", "50 <- 80, 70",
			accel.SettingWaits, "", false, false,
		},
		"killed before that write": {
			Case{Setting: limit("70"), Read: Reading{Text: "80"}, Record: was("50", false, "80", "70")},
			Write, "70",
			"50 <- 80, 70", accel.SettingWaits, "", false, false,
		},
		"something else has changed it": {
			Case{Setting: limit("80"), Read: Reading{Text: "33"}, Record: was("50", true, "80"), Drifts: 4},
			Write, "80",
			"50 <- 80", accel.SettingWaits, "", false, true,
		},
		"something else changes it all the time": {
			Case{Setting: limit("80"), Read: Reading{Text: "33"}, Record: was("50", true, "80"), Drifts: 5},
			Nothing, "", "-",
			accel.SettingGivenUp, "limit is 33, configured is 80: contested: something else changed it 6 times within 10m0s",
			false, true,
		},
		"given up": {
			Case{Setting: limit("80"), Read: Reading{Text: "33"}, Record: was("50", true, "80"), Stopped: true},
			Nothing, "", "-",
			accel.SettingGivenUp, "", false, true,
		},
		"given up, and another value is configured": {
			Case{Setting: limit("70"), Read: Reading{Text: "33"}, Record: was("50", true, "80"), Stopped: true},
			Write, "70",
			"50 <- 80, 70", accel.SettingWaits, "", false, false,
		},
		"the driver is bound again, with its own value": {
			Case{Setting: limit("80"), Read: Reading{Text: "100"}, Record: was("50", true, "80").with(rebound)},
			Write, "80",
			"100 <- 80", accel.SettingWaits, "", false, false,
		},
		"the driver is bound again, and kept acceld's": {
			Case{Setting: limit("80"), Read: Reading{Text: "80"}, Record: was("50", true, "80").with(rebound)},
			Confirm, "",
			"50 <- 80 done", accel.SettingApplied, "", false, false,
		},
		"the driver is bound again, kept it, and another is configured": {
			Case{Setting: limit("70"), Read: Reading{Text: "80"}, Record: was("50", true, "80").with(rebound)},
			Write, "70",
			"50 <- 80, 70", accel.SettingWaits, "", false, false,
		},
		"out of the bounds of this device": {
			Case{Setting: limit("80"), Read: Reading{Text: "50", Most: "60"}},
			Nothing, "", "-", accel.SettingRefused,
			"limit is 50, configured is 80: failed: 80 is above 60, the most that this device allows", false, false,
		},
		"not supported": {
			Case{Setting: limit("80"), Read: Reading{Unsupported: "no"}},
			Nothing, "", "-", accel.SettingUnsupported,
			"limit, configured is 80: unsupported: no", false, false,
		},
		"cannot be read": {
			Case{Setting: limit("80"), Read: Reading{Problem: "input/output error"}},
			Nothing, "", "-", accel.SettingRefused,
			"limit, configured is 80: failed: input/output error", false, false,
		},
		"not known yet": {
			Case{Setting: limit("80"), Read: Reading{Unknown: "its driver is ready"}, Early: true},
			Nothing, "", "-",
			accel.SettingWaits, "limit, configured is 80: waits until its driver is ready", true, false,
		},
		"not known for long": {
			Case{Setting: limit("80"), Read: Reading{Unknown: "its driver is ready"}},
			Nothing, "", "-", accel.SettingWaits, "",
			false, false,
		},
		"it failed, and is tried later": {
			Case{
				Setting: limit("80"), Read: Reading{Text: "50"},
				Tried: Try{Text: "80", Binding: bound, Problem: "busy", Next: now.Add(1)},
			}, Nothing, "", "-", accel.SettingRefused, "limit is 50, configured is 80: failed: busy", false, false,
		},
		"it failed, and is tried now": {
			Case{
				Setting: limit("80"), Read: Reading{Text: "50"}, Record: was("50", false, "80"),
				Tried: Try{Text: "80", Binding: bound, Problem: "busy", Next: now},
			}, Write, "80", "50 <- 80", accel.SettingWaits, "", false, false,
		},
		"it failed for another value": {
			Case{
				Setting: limit("80"), Read: Reading{Text: "50"},
				Tried: Try{Text: "90", Binding: bound, Problem: "busy", Next: now.Add(1)},
			}, Write, "80", "50 <- 80", accel.SettingWaits, "", false, false,
		},
		"it failed with another binding": {
			Case{
				Setting: limit("80"), Read: Reading{Text: "50"},
				Tried: Try{Text: "80", Binding: bound - 1, Problem: "busy", Unsupported: true, Next: now.Add(1)},
			}, Write, "80", "50 <- 80", accel.SettingWaits, "", false, false,
		},
		"the driver does not support it": {
			Case{
				Setting: limit("80"), Read: Reading{Text: "50"},
				Tried: Try{Text: "80", Binding: bound, Problem: "no", Unsupported: true},
			}, Nothing, "", "-", accel.SettingUnsupported, "", false, false,
		},
		"the device takes another value": {
			Case{
				Setting: limit("80"), Read: Reading{Text: "75"}, Record: was("50", false, "80", "75"),
				Tried: Try{Text: "80", Binding: bound, Done: true, Got: "75"},
			},
			Nothing, "", "-", accel.SettingRefused,
			"limit is 75, configured is 80: failed: the device has taken 80 and says 75", false, false,
		},
		"who has the device?": {
			Case{Setting: mode("exclusive"), Read: Reading{Text: "0"}}, AskUsers, "", "-", "", "", false, false,
		},
		"somebody has it": {
			Case{Setting: mode("exclusive"), Read: Reading{Text: "0"}, Asked: true, Users: []string{"pod a/b"}},
			Nothing, "",
			"-", accel.SettingWaits, "mode is shared, configured is exclusive: waits until nobody has the device: pod a/b", true,
			false,
		},
		"nobody has it, and not everybody knows": {
			Case{Setting: mode("exclusive"), Read: Reading{Text: "0"}, Asked: true},
			Nothing, "", "-", accel.SettingWaits, "",
			true, false,
		},
		"nobody has it": {
			Case{Setting: mode("exclusive"), Read: Reading{Text: "0"}, Asked: true, Calm: true},
			Write, "3", "0 <- 3",
			accel.SettingWaits, "", false, false,
		},
		"it waits for a reset": {
			Case{Setting: mode("exclusive"), Read: Reading{Text: "0", Pending: "3"}},
			Nothing, "", "-", accel.SettingWaits,
			"mode is shared, configured is exclusive: waits for a reset of the device, or a reboot", false, false,
		},
		"the device does not say it": {
			Case{Setting: limit("80"), Read: Reading{Blind: true}}, Write, "80", "? <- 80", accel.SettingWaits, "", false, false,
		},
		"the device does not say it, and it was written": {
			Case{
				Setting: limit("80"), Read: Reading{Blind: true}, Record: was("", true, "80"),
				Tried: Try{Text: "80", Binding: bound, Done: true, Got: "80"},
			},
			Nothing, "", "-", accel.SettingApplied,
			"limit was set to 80: as it was written: the device does not say it", false, false,
		},

		"no longer configured": {
			Case{Setting: limit(""), Read: Reading{Text: "80"}, Record: was("50", true, "80")},
			Write, "50", "-",
			accel.SettingWaits, "", false, false,
		},
		"as before": {
			Case{Setting: limit(""), Read: Reading{Text: "50"}, Record: was("50", true, "80")},
			Forget, "", "-", "", "", false,
			false,
		},
		"something else has set it since": {
			Case{Setting: limit(""), Read: Reading{Text: "33"}, Record: was("50", true, "80")},
			Forget, "", "-", "",
			"something else has set it to 33", false, false,
		},
		"the written value ended with the binding": {
			Case{Setting: limit(""), Read: Reading{Text: "100"}, Record: was("50", true, "80").with(rebound)},
			Forget, "", "-",
			"", "", false, false,
		},
		"a device that kept it over a binding": {
			Case{Setting: limit(""), Read: Reading{Text: "80"}, Record: was("50", true, "80").with(rebound)},
			Write, "50", "-",
			accel.SettingWaits, "", false, false,
		},
		"a lasting one after a boot": {
			Case{
				Setting: limit(""), Read: Reading{Text: "80"},
				Record: was("50", true, "80").with(func(r *Record) { r.Lasting, r.Binding = true, 1 }),
			}, Write, "50", "-", accel.SettingWaits, "", false, false,
		},
		"restored, and waits for a reset": {
			Case{Setting: limit(""), Read: Reading{Text: "80", Pending: "50"}, Record: was("50", true, "80")},
			Forget, "", "-",
			"", "", false, false,
		},
		"cannot be read before it is restored": {
			Case{Setting: limit(""), Read: Reading{Problem: "no"}, Record: was("50", true, "80")},
			Nothing, "", "-",
			accel.SettingRefused, "limit, no longer configured: failed: what was there before is not restored: no", false, false,
		},
		"not known before it is restored": {
			Case{Setting: limit(""), Read: Reading{Unknown: "it is"}, Record: was("50", true, "80"), Early: true},
			Nothing, "",
			"-", accel.SettingWaits, "", false, false,
		},
		"unknown before, with something that undoes it": {
			Case{
				Setting: limit(""), Read: Reading{Blind: true},
				Record: was("", true, "80").with(func(r *Record) { r.Before, r.Undo = nil, "9" }),
			}, Write, "9", "-", accel.SettingWaits, "", false, false,
		},
		"unknown before, and undone": {
			Case{
				Setting: limit(""), Read: Reading{Blind: true},
				Record: was("", true, "80").with(func(r *Record) { r.Before, r.Undo = nil, "9" }),
				Tried:  Try{Text: "9", Binding: bound, Done: true},
			}, Forget, "", "-", "", "", false, false,
		},
		"unknown before": {
			Case{
				Setting: limit(""), Read: Reading{Blind: true},
				Record: was("", true, "80").with(func(r *Record) { r.Before = nil }),
			}, Forget, "", "-", "", "it is not known what was there before", false, false,
		},
		"restored only when nobody has it": {
			Case{Setting: mode(""), Read: Reading{Text: "3"}, Record: was("0", true, "3"), Asked: true, Users: []string{"x"}},
			Nothing, "", "-", accel.SettingWaits, "", true, false,
		},
		"it cannot be restored now": {
			Case{
				Setting: limit(""), Read: Reading{Text: "80"}, Record: was("50", true, "80"),
				Tried: Try{Text: "50", Binding: bound, Problem: "busy", Next: now.Add(1)},
			}, Nothing, "", "-", accel.SettingRefused, "", false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.Kind, c.Address, c.Binding, c.Now = "a-b", one, bound, now
			got := Decide(c.Case)
			if got.Do != c.do || got.Text != c.writes || (got.Hold != nil) != c.hold || got.Drift != c.drift {
				t.Errorf("it does %q with %q, holds %q, drift %t", got.Do, got.Text, got.Hold, got.Drift)
			}
			if text := recorded(got.Record); text != c.record {
				t.Errorf("it notes %q, want %q", text, c.record)
			}
			var have accel.SettingHave
			if got.Have != nil {
				have = *got.Have
			}
			if have.State != c.state || c.says != "" && c.says != have.String() && c.says != got.Left {
				t.Errorf("%q: %q; left %q", have.State, have, got.Left)
			}
			if got.Record != nil && (got.Record.Binding != bound || got.Record.Kind != "a-b" || got.Record.Address != one) {
				t.Errorf("%+v", got.Record)
			}
			if got.Stop != (c.state == accel.SettingGivenUp) {
				t.Errorf("stop: %t", got.Stop)
			}
		})
	}
}

// recorded is a record as the table has it.
func recorded(r *Record) string {
	if r == nil {
		return "-"
	}
	before, done := "?", ""
	if r.Before != nil {
		before = *r.Before
	}
	if r.Done {
		done = " done"
	}
	return before + " <- " + strings.Join(r.Ours, ", ") + done
}

// TestRecordsStayShort: a value that is changed every day does not make the record longer for ever.
func TestRecordsStayShort(t *testing.T) {
	r := was("50", false, "80")
	for _, value := range []accel.SettingValue{"81", "82", "83", "84", "85", "82"} {
		r = Decide(Case{
			Kind: "a-b", Address: one, Setting: limit(value), Read: Reading{Text: "1"}, Record: r, Binding: bound,
		}).Record
	}
	if got := recorded(r); got != "50 <- 83, 84, 85, 82" {
		t.Error(got)
	}
	if _, err := decode(r.encode()); err != nil {
		t.Error(err)
	}
}

func TestDecode(t *testing.T) {
	good := was("50", true, "80", "81").with(func(r *Record) { r.Undo, r.Lasting, r.Needs = "1", true, accel.SettingNeedsIdle })
	got, err := decode(good.encode())
	if diff := cmp.Diff(*good, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, change := range map[string]func(*Record){
		"no kind":         func(r *Record) { r.Kind = "" },
		"an address":      func(r *Record) { r.Address = "../../module/edu" },
		"a name":          func(r *Record) { r.Setting = "../x" },
		"nothing written": func(r *Record) { r.Ours = nil },
		"much written":    func(r *Record) { r.Ours = []string{"1", "2", "3", "4", "5"} },
		"lines":           func(r *Record) { r.Ours = []string{"1\n2"} },
		"lines before":    func(r *Record) { r.Before = text("1\n2") },
		"nothing before":  func(r *Record) { r.Before = text("") },
		"lines to undo":   func(r *Record) { r.Undo = "\n" },
		"a file outside":  func(r *Record) { r.File = "../x" },
		"another file":    func(r *Record) { r.File = "/etc/passwd" },
		"too long":        func(r *Record) { r.Kind = strings.Repeat("x", maxRecord) },
	} {
		r := *was("50", true, "80")
		change(&r)
		if _, err := decode(r.encode()); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if _, err := decode("{"); err == nil {
		t.Error("no JSON is taken")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(was("50", true, "80").encode())
	f.Add(`{"kind":"a-b","address":"0000:01:00.0","setting":"limit","ours":["\n"]}`)
	f.Fuzz(func(t *testing.T, note string) {
		r, err := decode(note)
		if err != nil {
			return
		}
		for _, there := range []string{"", "50", "80", "x"} {
			for _, read := range []Reading{{Text: there}, {Blind: true}, {Problem: "p"}, {Unsupported: "u"}} {
				step := Decide(Case{
					Kind: r.Kind, Address: r.Address, Setting: r.setting(), Read: read, Record: &r, Calm: true,
					Asked: true,
				})
				back, known := r.back()
				if step.Do == Write && (!known || step.Text != back || !accel.SettingText(step.Text)) {
					t.Errorf("%q is written", step.Text)
				}
			}
		}
	})
}

// FuzzReading: whatever an attribute or a program says, what is written is what the definition allows.
func FuzzReading(f *testing.F) {
	f.Add("50", "", "1", "100")
	f.Add("auto\n", "0x7f", "-1", "NaN")
	f.Fuzz(func(t *testing.T, value, pending, least, most string) {
		for _, s := range []accel.Setting{limit("80"), mode("exclusive")} {
			told := accel.ProbeSetting{Value: value, Pending: pending, Min: least, Max: most}
			r := readTold(map[string]accel.ProbeSetting{s.Name: told}, s)
			step := Decide(Case{Kind: "a-b", Address: one, Setting: s, Read: r, Binding: bound, Asked: true, Calm: true})
			if step.Do != Write {
				continue
			}
			if step.Text != "80" && step.Text != "3" {
				t.Errorf("%q is written", step.Text)
			}
			if _, err := decode(step.Record.encode()); err != nil {
				t.Errorf("%+v: %v", step.Record, err)
			}
		}
	})
}
