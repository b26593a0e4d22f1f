package settings

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
)

// power is a setting of the probe program.
func power(value accel.SettingValue) accel.Setting {
	return accel.Setting{Name: "power", Value: value}
}

// ecc takes effect after a reset, and survives a boot.
func ecc(value accel.SettingValue) accel.Setting {
	return accel.Setting{
		Name: "ecc", Values: map[string]string{"on": "on", "off": "off"}, Needs: accel.SettingNeedsReset, Lasting: true,
		Value: value,
	}
}

// clock is one that the device does not say.
func clock(value accel.SettingValue) accel.Setting {
	low, high := 1.0, 3000.0
	return accel.Setting{
		Name: "clock", Values: map[string]string{"off": "off"}, Min: &low, Max: &high, Undo: "off", Value: value,
	}
}

// tells makes the program report a setting.
func (b *bed) tells(name string, s accel.ProbeSetting) {
	b.mu.Lock()
	b.told = map[string]accel.ProbeSetting{name: s}
	b.mu.Unlock()
	b.changed()
}

// takes makes the program set what it is asked for, as answer does.
func (b *bed) takes(answer func(was accel.ProbeSetting, to string) accel.ProbeSetting) {
	b.set = func(r accel.ProbeSet) accel.ProbeSet { // the bed is locked
		b.told = map[string]accel.ProbeSetting{r.Setting: answer(b.told[r.Setting], r.Value)}
		return r
	}
}

func TestByProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, power("250"))
		b.takes(func(was accel.ProbeSetting, to string) accel.ProbeSetting { was.Value = to; return was })
		k := b.keeper()
		defer b.run(k)()
		b.shows(k, accel.SettingWaits, "", true) // it has not reported
		b.tells("power", accel.ProbeSetting{Value: "300", Min: "100", Max: "400"})
		b.shows(k, accel.SettingApplied, "250", false)
		b.wrote("power=250")
		b.noted("300 <- 250 done")
		b.tells("power", accel.ProbeSetting{Value: "400", Min: "100", Max: "400"}) // by something else
		if h := b.shows(k, accel.SettingApplied, "250", false); h.Drifts != 1 {
			t.Errorf("%+v", h)
		}
		b.configure("90")
		if h := b.shows(k, accel.SettingRefused, "250", false); h.Message != "90 is below 100, the least that this device allows" {
			t.Error(h.Message)
		}
		b.wrote("power=250")
		b.configure("")
		synctest.Wait()
		b.wrote("power=300")
		b.noted()
	})
}

func TestProgramDoesNotSay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *bed)
		state  accel.SettingState
		says   string
	}{
		"nothing yet": {func(*bed) {}, accel.SettingWaits, "until its probe program has reported"},
		"why not":     {func(b *bed) { b.untold = "no library" }, accel.SettingRefused, "no library"},
		"no such setting": {
			func(b *bed) { b.told = map[string]accel.ProbeSetting{} }, accel.SettingUnsupported,
			"the device has no such setting",
		},
		"nonsense": {
			func(b *bed) { b.told = map[string]accel.ProbeSetting{"power": {Value: "1\n2"}} }, accel.SettingRefused,
			`its probe program says "1\n2", which is no value of a setting`,
		},
		"a refusal": {
			func(b *bed) {
				b.told = map[string]accel.ProbeSetting{"power": {Value: "300"}}
				b.set = func(r accel.ProbeSet) accel.ProbeSet { r.Problem, r.Unsupported = "not this one", true; return r }
			}, accel.SettingUnsupported, "not this one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, power("250"))
				c.change(b)
				k := b.keeper()
				defer b.run(k)()
				time.Sleep(time.Hour)
				synctest.Wait()
				a := b.device(k)
				if len(a.Settings) != 1 || a.Settings[0].State != c.state || a.Settings[0].Message != c.says ||
					a.Withheld != nil || len(b.writes) > 1 {
					t.Errorf("%+v, %+v, %q", a.Settings, a.Withheld, b.writes)
				}
			})
		})
	}
}

// TestLasting: what takes effect after a reset waits for it; what was there before outlives a boot, and another slot.
func TestLasting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, ecc("off"))
		b.told = map[string]accel.ProbeSetting{"ecc": {Value: "on"}}
		b.takes(func(was accel.ProbeSetting, to string) accel.ProbeSetting {
			if was.Pending = to; was.Value == to {
				was.Pending = ""
			}
			return was
		})
		k := b.keeper()
		stop := b.run(k)
		if h := b.shows(k, accel.SettingWaits, "on", false); h.Message != "for a reset of the device, or a reboot" {
			t.Error(h.Message)
		}
		b.wrote("ecc=off")
		b.noted()
		if got := b.notes(true); len(got) != 1 || got[0] != "on <- off done" {
			t.Errorf("on record is %q", got)
		}
		stop()

		b.m.Remove("/run/acceld") // a boot
		b.m.File("/proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000002\n")
		b.m.Unbind(one)
		b.m.Bind(one, "edu")
		b.tells("ecc", accel.ProbeSetting{Value: "off"})
		next := b.keeper()
		stop = b.run(next)
		b.shows(next, accel.SettingApplied, "off", false)
		b.wrote()
		b.configure("")
		synctest.Wait()
		b.wrote("ecc=on")
		if got := b.notes(true); len(got) != 0 {
			t.Errorf("on record is %q", got)
		}
		stop()
	})
}

// TestBlind: a value that the device does not say is written once for each binding and agent, and undone.
func TestBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, clock("1400"))
		b.told = map[string]accel.ProbeSetting{"clock": {Max: "2000"}}
		b.takes(func(was accel.ProbeSetting, _ string) accel.ProbeSetting { return was })
		k := b.keeper()
		stop := b.run(k)
		h := b.shows(k, accel.SettingApplied, "", false)
		if h.String() != "clock was set to 1400: as it was written: the device does not say it" {
			t.Error(h)
		}
		b.noted("? <- 1400, 1400 done")
		time.Sleep(time.Hour)
		b.wrote("clock=1400")
		stop()
		next := b.keeper()
		defer b.run(next)()
		b.shows(next, accel.SettingApplied, "", false)
		b.wrote("clock=1400")
		b.configure("2100")
		b.shows(next, accel.SettingRefused, "", false)
		b.configure("")
		synctest.Wait()
		b.wrote("clock=off")
		b.noted()
	})
}

// fake is the probe program of a purge.
type fake struct {
	b      *bed
	closed bool
}

func (f *fake) Settings(string) (map[string]accel.ProbeSetting, bool) {
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	return f.b.told, f.b.told != nil
}

func (f *fake) Set(_ context.Context, r accel.ProbeSet) error {
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	f.b.writes = append(f.b.writes, r.Setting+"="+r.Value)
	if r = f.b.set(r); r.Problem != "" {
		return errors.New(r.Problem)
	}
	return nil
}

func (f *fake) Close() { f.closed = true }
