package settings

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/host/ledger"
)

// bed is a machine with one device, whose driver has an attribute that can be set.
type bed struct {
	*testing.T
	m      *hosttest.Machine
	ledger *ledger.Ledger
	log    bytes.Buffer

	mu       sync.Mutex
	def      accel.Definition
	users    []string
	asked    int           // how often it was asked who has the device
	asking   time.Duration // how long it takes to find out who has the device
	told     map[string]accel.ProbeSetting
	untold   string // why the program does not report
	deaf     bool   // the program does not report, for no known reason
	reset    bool
	replaces bool // its driver is being replaced
	replaced chan struct{}
	write    func(name, text string) error // nil: as a driver does
	writes   []string
	set      func(accel.ProbeSet) accel.ProbeSet
}

const attribute = "/sys/bus/pci/devices/" + one + "/limit"

func newBed(t *testing.T, all ...accel.Setting) *bed {
	t.Helper()
	b := &bed{T: t, m: hosttest.New(t), replaced: make(chan struct{})}
	b.def = accel.Definition{
		Kind: "a-b", Driver: accel.DriverDefinition{Binds: "edu"}, Settings: all, Probe: &accel.Probe{},
	}
	var err error
	if b.ledger, err = ledger.Open(b.m.Host, "/var/lib/acceld", slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	b.m.AddPCI(accel.PCIDevice{Address: one, Vendor: "1234", Device: "11e8"})
	b.m.Modprobe(hosttest.Driver{Module: "edu", IDs: []string{"1234:11e8"}})
	b.put("100")
	return b
}

// put is a value that the driver has, or that somebody has written.
func (b *bed) put(value string) { b.m.SetAttribute(one, "limit", value) }

func (b *bed) is() string {
	b.Helper()
	text, err := b.m.Host.ReadAttribute(attribute)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// keeper returns a keeper, as that of the next agent.
func (b *bed) keeper() *Keeper {
	var k *Keeper
	users := func(context.Context, *accel.Definition, accel.Accelerator) []string {
		time.Sleep(b.asking)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.asked++
		return b.users
	}
	k = New(Options{
		Host: b.m.Host, Ledger: b.ledger, Log: slog.New(slog.NewTextHandler(&lockedWriter{b}, nil)),
		Every: 15 * time.Second,
		Follow: func() (accel.Machine, <-chan struct{}) {
			b.mu.Lock()
			ch := b.replaced
			b.mu.Unlock()
			return b.machine(k), ch
		},
		Users: users, FunctionUsers: users,
		Told: func(string, string) (map[string]accel.ProbeSetting, bool, string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.told, b.told != nil && !b.deaf, b.untold
		},
		Set: func(_ context.Context, _ string, r accel.ProbeSet) accel.ProbeSet {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.writes = append(b.writes, r.Setting+"="+r.Value)
			return b.set(r)
		},
		Changed: b.changed, Write: b.store,
	})
	return k
}

type lockedWriter struct{ b *bed }

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	return w.b.log.Write(p)
}

// store is the driver, which takes what is written.
func (b *bed) store(name, text string) error {
	b.mu.Lock()
	b.writes = append(b.writes, text)
	write := b.write
	b.mu.Unlock()
	if write != nil {
		return write(name, text)
	}
	b.put(text)
	return nil
}

// changed makes another snapshot.
func (b *bed) changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.replaced)
	b.replaced = make(chan struct{})
}

func (b *bed) definition() *accel.Definition {
	b.mu.Lock()
	defer b.mu.Unlock()
	def := b.def
	return &def
}

// device is what an agent sees of the device.
func (b *bed) device(k *Keeper) accel.Accelerator {
	a := accel.Accelerator{ID: one, Health: accel.Health{State: accel.Healthy}, Serial: "EDU-1"}
	if link, err := b.m.Host.Readlink("/sys/bus/pci/devices/" + one + "/driver"); err == nil {
		a.Bound = path.Base(link)
	}
	a.Partitions = []accel.Accelerator{{ID: "p", Parent: one}}
	a = k.Enrich(b.definition(), []accel.Accelerator{a})[0]
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reset {
		a.Withheld = &accel.Withheld{By: accel.ByReset}
	}
	return a
}

func (b *bed) machine(k *Keeper) accel.Machine {
	def := b.definition()
	have := accel.Have{Accelerators: []accel.Accelerator{b.device(k)}}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.replaces {
		have.Driver.Upgrade = &accel.Upgrade{Phase: accel.UpgradeReplacing}
	}
	return accel.Machine{
		Want: accel.Want{Kinds: map[string]*accel.Definition{def.Kind: def}},
		Have: map[string]accel.Have{def.Kind: have},
	}
}

// configure changes what is configured, as another configuration does.
func (b *bed) configure(value accel.SettingValue) {
	b.mu.Lock()
	all := append([]accel.Setting(nil), b.def.Settings...)
	all[0].Value = value
	b.def.Settings = all
	b.mu.Unlock()
	b.changed()
}

// run runs a keeper; stop ends it.
func (b *bed) run(k *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	guard.Go(func() { ended <- k.Run(ctx) })
	synctest.Wait()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				b.Error(err)
			}
		})
	}
	return stop
}

// shows fails unless a device has its one setting in a state.
func (b *bed) shows(k *Keeper, state accel.SettingState, value string, withheld bool) accel.SettingHave {
	b.Helper()
	synctest.Wait()
	a := b.device(k)
	if len(a.Settings) != 1 || a.Settings[0].State != state || a.Settings[0].Value != value ||
		(a.Withheld != nil) != withheld || (a.Partitions[0].Withheld != nil) != withheld {
		b.Fatalf("it shows %+v, withheld %+v; the attribute says %q; log %s", a.Settings, a.Withheld, b.is(), &b.log)
	}
	return a.Settings[0]
}

func (b *bed) notes(lasting bool) (all []string) {
	b.Helper()
	read := b.ledger.Notes
	if lasting {
		read = b.ledger.LastingNotes
	}
	notes, err := read(note)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range notes {
		r, err := decode(n.Text)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, recorded(&r))
	}
	return all
}

func (b *bed) noted(want ...string) {
	b.Helper()
	if got := b.notes(false); strings.Join(got, "; ") != strings.Join(want, "; ") {
		b.Errorf("on record is %q, want %q", got, want)
	}
}

func (b *bed) wrote(want ...string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if strings.Join(b.writes, " ") != strings.Join(want, " ") {
		b.Errorf("written was %q, want %q", b.writes, want)
	}
	b.writes = nil
}

// TestApplied: a device is withheld until it is set, what was there before is on record, and it is restored when the
// setting is no longer configured.
func TestApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		k := b.keeper()
		if a := b.device(k); !a.WithheldBy(accel.BySettings) || a.Withheld.Reason != accel.SettingPending ||
			!a.AwaitsReport() || a.Partitions[0].Withheld == nil {
			t.Errorf("before it was set: %+v", a)
		}
		defer b.run(k)()
		b.shows(k, accel.SettingApplied, "80", false)
		b.noted("100 <- 80 done")
		b.wrote("80")
		time.Sleep(time.Hour)
		b.wrote()
		b.configure("70")
		b.shows(k, accel.SettingApplied, "70", false)
		b.noted("100 <- 70 done")
		b.configure("")
		synctest.Wait()
		if a := b.device(k); a.Settings != nil || a.Withheld != nil || b.is() != "100" {
			t.Errorf("no longer configured: %+v, %q", a, b.is())
		}
		b.noted()
		b.wrote("70", "100")
		time.Sleep(time.Hour)
		b.wrote()
	})
}

// TestAsBefore: what a device has already is not written, and leaves no record.
func TestAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("100"))
		k := b.keeper()
		defer b.run(k)()
		b.shows(k, accel.SettingApplied, "100", false)
		b.noted()
		b.wrote()
		b.configure("")
		synctest.Wait()
		b.wrote()
		if b.device(k).Settings != nil {
			t.Error("it still shows")
		}
	})
}

// TestKilled: an agent that is killed between its record and the write, and after the write, leaves what the next one,
// or a purge, needs.
func TestKilled(t *testing.T) {
	for name, written := range map[string]bool{"before the write": false, "after the write": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, limit("80"))
				first := b.keeper()
				killed := make(chan struct{})
				b.write = func(_, text string) error {
					if b.noted("100 <- 80"); written {
						b.put(text)
					}
					<-killed // nothing more of it happens
					return errors.New("killed")
				}
				stop := b.run(first)
				b.mu.Lock()
				b.write, b.writes = nil, nil
				b.mu.Unlock()
				again, err := ledger.Open(b.m.Host, "/var/lib/acceld", slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				b.ledger = again
				next := b.keeper()
				stopNext := b.run(next)
				b.shows(next, accel.SettingApplied, "80", false)
				b.noted("100 <- 80 done")
				if written {
					b.wrote()
				} else {
					b.wrote("80")
				}
				b.configure("")
				synctest.Wait()
				if b.is() != "100" {
					t.Errorf("it is %q in the end", b.is())
				}
				stopNext()
				close(killed)
				stop()
			})
		})
	}
}

// TestRebound: the setting is written again when the driver is bound again, and what was there before is what the
// driver began with.
func TestRebound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		k := b.keeper()
		defer b.run(k)()
		b.shows(k, accel.SettingApplied, "80", false)
		b.m.Unbind(one)
		b.changed()
		synctest.Wait()
		b.put("90") // this driver begins with another value
		b.m.Bind(one, "edu")
		if a := b.device(k); a.Withheld == nil {
			t.Errorf("offered before it is set again: %+v", a)
		}
		b.changed()
		h := b.shows(k, accel.SettingApplied, "80", false)
		if h.Drifts != 0 {
			t.Errorf("that counts as drift: %+v", h)
		}
		b.noted("90 <- 80 done")
		b.wrote("80", "80")
		b.configure("")
		synctest.Wait()
		if b.is() != "90" {
			t.Errorf("restored is %q", b.is())
		}
	})
}

// TestDrift: what something else writes is repaired and counted, until it happens too often.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		k := b.keeper()
		defer b.run(k)()
		b.shows(k, accel.SettingApplied, "80", false)
		for n := range maxDrifts {
			b.put("33")
			time.Sleep(16 * time.Second)
			if h := b.shows(k, accel.SettingApplied, "80", false); h.Drifts != n+1 {
				t.Errorf("after %d: %+v", n+1, h)
			}
		}
		b.noted("100 <- 80 done")
		if n := strings.Count(b.log.String(), "something else has changed"); n != 1 {
			t.Errorf("logged %d times: %s", n, &b.log)
		}
		b.mu.Lock()
		b.writes = nil
		b.mu.Unlock()
		b.put("33")
		time.Sleep(time.Hour)
		h := b.shows(k, accel.SettingGivenUp, "33", false)
		if h.Drifts != maxDrifts+1 || h.Reason() != accel.SettingContested {
			t.Errorf("%+v", h)
		}
		b.wrote()
		if n := strings.Count(b.log.String(), "SettingContested"); n != 1 {
			t.Errorf("logged %d times: %s", n, &b.log)
		}
		b.configure("70") // somebody has settled it
		b.shows(k, accel.SettingApplied, "70", false)
		b.wrote("70")
	})
}

// TestRareDrift: what happens now and then is repaired for ever.
func TestRareDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		k := b.keeper()
		defer b.run(k)()
		for range 3 * maxDrifts {
			b.put("33")
			time.Sleep(driftWindow / 3)
		}
		b.put("80")
		time.Sleep(time.Minute)
		if h := b.shows(k, accel.SettingApplied, "80", false); h.Drifts < 3*maxDrifts-1 {
			t.Errorf("%+v", h)
		}
	})
}

// TestIdle: a setting that needs an idle device waits for it, with the device withheld, and is restored in the same
// way.
func TestIdle(t *testing.T) {
	s := limit("80")
	s.Needs = accel.SettingNeedsIdle
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, s)
		b.users = []string{"pod default/train"}
		k := b.keeper()
		defer b.run(k)()
		time.Sleep(time.Minute)
		h := b.shows(k, accel.SettingWaits, "100", true)
		if h.Message != "until nobody has the device: pod default/train" {
			t.Error(h.Message)
		}
		if a := b.device(k); !a.WithheldAlone() || !strings.Contains(a.Withheld.Message, "pod default/train") ||
			a.Withheld.Reason != accel.DeviceHeld || a.AwaitsReport() {
			t.Errorf("%+v", a.Withheld)
		}
		b.wrote()
		b.noted()
		b.mu.Lock()
		b.users = nil
		b.mu.Unlock()
		time.Sleep(busy + time.Second)
		b.shows(k, accel.SettingApplied, "80", false)
		b.wrote("80")
		b.configure("")
		synctest.Wait()
		b.wrote() // it was not withheld long enough
		if a := b.device(k); a.Withheld == nil {
			t.Error("it is offered")
		}
		time.Sleep(calm + time.Second)
		synctest.Wait()
		b.wrote("100")
		if a := b.device(k); a.Withheld != nil {
			t.Errorf("%+v", a.Withheld)
		}
	})
}

// TestRefusals: what a driver refuses is shown, and tried again only if that can help. The device is offered.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		write  func(b *bed) func(name, text string) error
		state  accel.SettingState
		says   string
		writes int // at least, in an hour
		most   int
	}{
		"busy": {
			func(*bed) func(string, string) error {
				return func(name, _ string) error { return fmt.Errorf("write %s: %w", name, unix.EBUSY) }
			}, accel.SettingRefused, "busy", 6, 25,
		},
		"not supported": {
			func(*bed) func(string, string) error { return func(string, string) error { return unix.EOPNOTSUPP } },
			accel.SettingUnsupported, "not supported", 1, 1,
		},
		"read-only": {
			func(*bed) func(string, string) error { return func(string, string) error { return unix.EACCES } },
			accel.SettingUnsupported, "permission denied", 1, 1,
		},
		"another value": {
			func(b *bed) func(string, string) error { return func(string, string) error { b.put("75"); return nil } },
			accel.SettingRefused, "the device has taken 80 and says 75", 1, 1,
		},
		"ignored": {
			func(*bed) func(string, string) error { return func(string, string) error { return nil } },
			accel.SettingRefused, "the device has taken 80 and says 100", 1, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, limit("80"))
				b.write = c.write(b)
				k := b.keeper()
				defer b.run(k)()
				time.Sleep(time.Hour)
				h := b.shows(k, c.state, b.is(), false)
				if !strings.Contains(h.Message, c.says) || h.Reason() != accel.SettingFailed {
					t.Errorf("%+v", h)
				}
				if n := len(b.writes); n < c.writes || n > c.most {
					t.Errorf("written %d times", n)
				}
				if n := strings.Count(b.log.String(), "level=ERROR"); n != 1 {
					t.Errorf("logged %d times: %s", n, &b.log)
				}
				b.mu.Lock()
				b.write = nil
				b.mu.Unlock()
				b.configure("70")
				b.shows(k, accel.SettingApplied, "70", false)
				b.configure("")
				synctest.Wait()
				if b.is() != "100" {
					t.Errorf("restored is %q", b.is())
				}
			})
		})
	}
}

// TestTakenOtherwise: what a device has made of a value is acceld's, and is taken back.
func TestTakenOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		b.write = func(_, text string) error {
			if text == "80" {
				text = "75"
			}
			b.put(text)
			return nil
		}
		k := b.keeper()
		defer b.run(k)()
		b.shows(k, accel.SettingRefused, "75", false)
		b.configure("")
		synctest.Wait()
		if b.is() != "100" {
			t.Errorf("restored is %q", b.is())
		}
	})
}

// TestHostileAttributes: what is no value, or stands for several files, is neither believed nor written over.
func TestHostileAttributes(t *testing.T) {
	for name, c := range map[string]struct {
		text, file string
		says       string
	}{
		"lines":      {"100\n80", "limit", "no value of a setting"},
		"nothing":    {"", "limit", "no value of a setting"},
		"much":       {strings.Repeat("9", 100), "limit", "no value of a setting"},
		"control":    {"\x1b[2J", "limit", "no value of a setting"},
		"two files":  {"100", "limit*", `2 files match "limit*"`},
		"bounds":     {"100", "limit", "the bound in"},
		"no longer":  {"100", "none", `its driver has no "none"`},
		"a link out": {"100", "link/limit", `its driver has no "link/limit"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := limit("80")
				s.File = c.file
				b := newBed(t, s)
				b.put(c.text)
				if name == "two files" {
					b.m.SetAttribute(one, "limit2", "1")
				}
				if name == "bounds" {
					b.m.SetAttribute(one, "most", "many\nmore")
					b.def.Settings[0].MaxFile = "most"
				}
				k := b.keeper()
				defer b.run(k)()
				time.Sleep(2 * early)
				synctest.Wait()
				a := b.device(k)
				if len(a.Settings) != 1 || !strings.Contains(a.Settings[0].Message, c.says) || a.Withheld != nil {
					t.Errorf("%+v, %+v", a.Settings, a.Withheld)
				}
				b.wrote()
				b.noted()
			})
		})
	}
}

// TestLateAttribute: an attribute that the driver makes a moment after it was bound is waited for.
func TestLateAttribute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		b.m.Remove(attribute)
		k := b.keeper()
		defer b.run(k)()
		a := b.device(k)
		if !a.WithheldBy(accel.BySettings) || a.Settings[0].Message != `until its driver has made "limit"` {
			t.Errorf("%+v", a)
		}
		time.Sleep(100 * time.Millisecond)
		b.put("100")
		time.Sleep(time.Second)
		b.shows(k, accel.SettingApplied, "80", false)
	})
}

// TestHangs: a device that does not answer is shown as such, is offered after a while, and keeps nothing else.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		hang := make(chan struct{})
		b.write = func(_, text string) error { <-hang; b.put(text); return nil }
		k := b.keeper()
		stop := b.run(k)
		time.Sleep(early + time.Second)
		synctest.Wait()
		a := b.device(k)
		if a.Withheld != nil || len(a.Settings) != 1 || !strings.Contains(a.Settings[0].Message, "has not answered since") {
			t.Errorf("%+v", a)
		}
		b.wrote("80")
		close(hang)
		b.shows(k, accel.SettingApplied, "80", false)
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		hang := make(chan struct{})
		b.write = func(string, string) error { <-hang; return nil }
		stop := b.run(b.keeper())
		begin := time.Now()
		if stop(); time.Since(begin) > leave {
			t.Errorf("the agent ends after %s", time.Since(begin))
		}
		close(hang)
		synctest.Wait() // the write that hung still tidies up
	})
}

// TestAskingTakesLong: a device is not blamed for what it takes to find out who has it, and they are asked less often.
func TestAskingTakesLong(t *testing.T) {
	s := limit("80")
	s.Needs = accel.SettingNeedsIdle
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, s)
		b.users, b.asking = []string{"pod default/train"}, 2*slow
		k := b.keeper()
		stop := b.run(k)
		time.Sleep(3 * slow)
		for range 100 {
			time.Sleep(3 * time.Second)
			b.shows(k, accel.SettingWaits, "100", true)
		}
		stop()
		time.Sleep(3 * slow)
		if b.asked < 6 || b.asked > 10 { // once in 40 seconds
			t.Errorf("asked %d times", b.asked)
		}
	})
}

// TestResetAndUpgrade: nothing is written to a device that is being reset, or whose driver is being replaced.
func TestResetAndUpgrade(t *testing.T) {
	for name, change := range map[string]func(b *bed, begins bool){
		"reset":   func(b *bed, begins bool) { b.reset = begins },
		"upgrade": func(b *bed, begins bool) { b.replaces = begins },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, limit("80"))
				change(b, true)
				k := b.keeper()
				defer b.run(k)()
				time.Sleep(time.Minute)
				b.wrote()
				b.mu.Lock()
				change(b, false)
				b.mu.Unlock()
				b.changed()
				b.shows(k, accel.SettingApplied, "80", false)
			})
		})
	}
}

// TestLedger: without a record nothing is written.
func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		b.m.File("/run/acceld/ledger", "no directory")
		k := b.keeper()
		defer b.run(k)()
		time.Sleep(time.Minute)
		a := b.device(k)
		if len(a.Settings) != 1 || a.Settings[0].State != accel.SettingRefused || a.Withheld != nil {
			t.Errorf("%+v, %+v", a.Settings, a.Withheld)
		}
		b.wrote()
		b.m.Remove("/run/acceld/ledger")
		time.Sleep(10 * time.Minute)
		b.shows(k, accel.SettingApplied, "80", false)
	})
}

// TestWatts: an attribute with another unit and bounds of its own, in a directory whose name changes with each boot.
func TestWatts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, accel.Setting{
			Name: "powerLimitWatts", File: "hwmon/hwmon*/power1_cap", Factor: 1_000_000, MinFile: "hwmon/hwmon*/power1_cap_min",
			MaxFile: "hwmon/hwmon*/power1_cap_max", Value: "200.5",
		})
		b.m.SetAttribute(one, "hwmon/hwmon3/power1_cap", "300000000")
		b.m.SetAttribute(one, "hwmon/hwmon3/power1_cap_min", "100000000")
		b.m.SetAttribute(one, "hwmon/hwmon3/power1_cap_max", "300000000")
		b.write = func(name, text string) error {
			if name != "/sys/bus/pci/devices/"+one+"/hwmon/hwmon3/power1_cap" {
				t.Errorf("%q is written", name)
			}
			b.m.File(name, text+"\n")
			return nil
		}
		k := b.keeper()
		defer b.run(k)()
		b.shows(k, accel.SettingApplied, "200.5", false)
		b.wrote("200500000")
		b.configure("99")
		h := b.shows(k, accel.SettingRefused, "200.5", false)
		if h.Message != "99 is below 100, the least that this device allows" {
			t.Error(h.Message)
		}
		b.configure("")
		synctest.Wait()
		b.wrote("300000000")
	})
}

// TestUnrecorded: what cannot be recorded is not written.
func TestUnrecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit(""))
		k := b.keeper()
		defer b.run(k)() // it has read what is on record
		b.m.File("/run/acceld/ledger", "no directory")
		b.configure("80")
		h := b.shows(k, accel.SettingRefused, "100", false)
		if !strings.Contains(h.Message, "cannot be recorded") {
			t.Error(h.Message)
		}
		b.wrote()
		b.m.Remove("/run/acceld/ledger")
		time.Sleep(10 * time.Minute)
		b.shows(k, accel.SettingApplied, "80", false)
		b.noted("100 <- 80 done")
	})
}

// TestDefinitionGone: what an earlier definition has set is restored by its record.
func TestDefinitionGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, limit("80"))
		k := b.keeper()
		defer b.run(k)()
		b.shows(k, accel.SettingApplied, "80", false)
		b.mu.Lock()
		b.def.Settings = nil
		b.mu.Unlock()
		b.changed()
		synctest.Wait()
		if a := b.device(k); b.is() != "100" || a.Settings != nil {
			t.Errorf("%q, %+v", b.is(), a.Settings)
		}
		b.noted()
	})
}
