package settings

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

// look is one look at all settings of a device, in their order.
type look struct {
	*Keeper
	def     *accel.Definition
	a       accel.Accelerator
	device  *device
	binding uint64
	early   bool
	held    time.Time // since when the device is withheld for a setting

	have []accel.SettingHave
	hold *accel.Withheld
	next time.Time // when to look again; zero for as usual
}

// run looks at each setting of the definition, and at those on record that it no longer has.
func (l *look) run(ctx context.Context) {
	recorded := l.book.about(l.def.Kind, l.a)
	for _, s := range l.def.AllSettings() {
		recorded = slices.DeleteFunc(recorded, func(n string) bool { return n == s.Name })
		l.setting(ctx, s)
	}
	for _, gone := range recorded {
		for _, lasting := range []bool{false, true} {
			if r := l.book.of(name(l.def.Kind, l.a, gone, lasting)); r != nil {
				l.setting(ctx, r.setting())
			}
		}
	}
}

// setting does what is to be done about one setting.
func (l *look) setting(ctx context.Context, s accel.Setting) {
	if s.Value == "" && l.book.of(l.name(s)) == nil || s.OfFunctions() && isFunction(l.o.Host, l.a.ID) {
		return
	}
	st := l.state(s)
	var users []string
	asked := false
	const most = 4 // to ask, to write, to confirm, and to end
	var step Step
	for range most {
		now := time.Now()
		c := Case{
			Kind: l.def.Kind, Address: l.a.ID, Setting: s, Read: l.read(s), Record: l.book.of(l.name(s)),
			Binding: l.binding, Early: l.early, Tried: st.tried, Drifts: recent(st, now), Stopped: st.stopped,
			Asked: asked, Users: users, Calm: !l.held.IsZero() && now.Sub(l.held) >= calm, Now: now,
		}
		step = Decide(c)
		l.count(s, st, step, now)
		switch step.Do {
		case AskUsers:
			users, asked = l.users(ctx, s), true
			continue
		case Write:
			if ctx.Err() != nil {
				return
			}
			st.tried = l.write(ctx, s, step, st.tried)
			continue
		case Confirm:
			if err := l.book.put(l.name(s), *step.Record); err != nil {
				l.o.Log.Debug("a setting is confirmed later", "setting", s.Name, "error", err)
			}
		case Forget:
			l.forget(s, step)
		}
		break
	}
	l.show(s, st, step)
}

// users names who would be disturbed if a setting was written.
func (l *look) users(ctx context.Context, s accel.Setting) []string {
	l.waits(time.Time{})
	defer func() { l.waits(time.Now()) }()
	if s.Needs == accel.SettingNeedsFunctions {
		return l.o.FunctionUsers(ctx, l.def, l.a)
	}
	return l.o.Users(ctx, l.def, l.a)
}

// waits records when the look began to wait for the device; zero while it asks others who has the device, which takes a
// while with many processes or virtual functions.
func (l *look) waits(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.device.waiting = since
}

// name is the name of a setting's record.
func (l *look) name(s accel.Setting) string { return name(l.def.Kind, l.a, s.Name, s.Lasting) }

// state returns what is remembered of a setting. Another value or binding begins again.
func (l *look) state(s accel.Setting) *state {
	st := l.device.states[s.Name]
	if st == nil {
		st = &state{}
		l.device.states[s.Name] = st
	}
	if st.value != s.Value || st.binding != l.binding {
		*st = state{value: s.Value, binding: l.binding, total: st.total}
	}
	return st
}

// read reads a setting.
func (l *look) read(s accel.Setting) Reading {
	switch all, known, why := l.told(s); {
	case l.unreadable() != "":
		return Reading{Problem: l.unreadable()}
	case Binding(l.o.Host, l.a.ID) != l.binding:
		return Reading{Unknown: "its driver is bound again"}
	case s.File != "":
		return readFile(l.o.Host, l.a.ID, s, l.early)
	case known:
		return readTold(all, s)
	case why != "":
		return Reading{Problem: why}
	}
	return Reading{Unknown: "its probe program has reported"}
}

func (l *look) told(s accel.Setting) (all map[string]accel.ProbeSetting, known bool, why string) {
	if s.File != "" {
		return nil, false, ""
	}
	return l.o.Told(l.def.Kind, l.a.ID)
}

func (l *look) unreadable() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unread
}

// recent returns how often something else has changed a setting lately.
func recent(st *state, now time.Time) int {
	st.drifts = slices.DeleteFunc(st.drifts, func(at time.Time) bool { return now.Sub(at) > driftWindow })
	return len(st.drifts)
}

// count counts the changes of a setting by something else, each once.
func (l *look) count(s accel.Setting, st *state, step Step, now time.Time) {
	if step.Drift && !st.drifting {
		if st.drifting = true; len(st.drifts) == 0 {
			l.o.Log.Warn("something else has changed a setting of a device", "kind", l.def.Kind, "device", l.a.ID,
				"setting", s.Name, "is", step.Have.Value, "configured", s.Value)
		}
		st.drifts, st.total = append(st.drifts, now), st.total+1
	}
	if step.Have != nil && step.Have.State == accel.SettingApplied {
		st.drifting, st.stopped = false, false
	}
	st.stopped = st.stopped || step.Stop
}

// write writes a setting, and reads what the device says then.
func (l *look) write(ctx context.Context, s accel.Setting, step Step, before Try) Try {
	t := Try{Text: step.Text, Binding: l.binding}
	if before.Text == t.Text && before.Binding == t.Binding && !before.Done {
		t.Failures = before.Failures
	}
	fail := func(problem string) Try {
		t.Failures++
		t.Problem, t.Next = problem, time.Now().Add(again().After(t.Failures))
		return t
	}
	if step.Record != nil {
		if err := l.book.put(l.name(s), *step.Record); err != nil {
			return fail("it is not set, because what is there now cannot be recorded: " + err.Error())
		}
	}
	if Binding(l.o.Host, l.a.ID) != l.binding {
		return fail("its driver was bound again")
	}
	if t.Problem, t.Unsupported = l.put(ctx, s, step.Text); t.Problem != "" {
		return fail(t.Problem)
	}
	t.Done = true
	r := l.read(s)
	t.Got = r.there()
	if r.Blind {
		t.Got = step.Text
	}
	l.o.Log.Info("setting written", "kind", l.def.Kind, "device", l.a.ID, "setting", s.Name, "value",
		s.Word(step.Text), "before", step.Have.Value)
	if step.Record != nil && (r.Blind || t.Got != step.Text && accel.SettingText(t.Got)) {
		taken := *step.Record // another value than the one that was written is the device's answer to acceld
		taken.Done = r.Blind
		taken.Ours = append(slices.Clone(taken.Ours[max(0, len(taken.Ours)-maxOurs+1):]), t.Got)
		if err := l.book.put(l.name(s), taken); err != nil {
			l.o.Log.Debug("the record of a setting is older than the setting", "setting", s.Name, "error", err)
		}
	}
	return t
}

// put gives a text to the driver or the probe program, and returns why it was not taken.
func (l *look) put(ctx context.Context, s accel.Setting, text string) (problem string, unsupported bool) {
	if s.File == "" {
		answer := l.o.Set(ctx, l.def.Kind, accel.ProbeSet{Device: l.a.ID, Setting: s.Name, Value: text})
		return answer.Problem, answer.Unsupported
	}
	err := writeFile(l.o.Host, l.o.Write, l.a.ID, s, text)
	if err == nil {
		return "", false
	}
	return err.Error(), errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES) || errors.Is(err, errNoFunctions)
}

// forget forgets what was there before acceld.
func (l *look) forget(s accel.Setting, step Step) {
	r := l.book.of(l.name(s))
	if r == nil {
		return
	}
	if step.Left != "" {
		l.o.Log.Info("a setting that is no longer configured is left as it is", "kind", l.def.Kind, "device", l.a.ID,
			"setting", s.Name, "why", step.Left)
	}
	if err := l.book.drop(l.name(s), *r); err != nil {
		l.o.Log.Debug("the record of a setting is forgotten later", "setting", s.Name, "error", err)
	}
}

// show takes over what people see of a setting, and logs what is new about a failure.
func (l *look) show(s accel.Setting, st *state, step Step) {
	if step.Have == nil || step.Do == Forget {
		return
	}
	have := *step.Have
	if s.Value == "" && have.State == accel.SettingApplied {
		return
	}
	have.Drifts = st.total
	l.have = append(l.have, have)
	l.hold = cmp.Or(l.hold, step.Hold)
	soon := st.tried.Next
	switch {
	case step.Hold != nil && s.Needs != accel.SettingNeedsIdle && s.Needs != accel.SettingNeedsFunctions:
		soon = time.Now().Add(soonest)
	case step.Hold != nil && l.held.IsZero():
		soon = time.Now().Add(calm)
	case step.Hold != nil:
		soon = time.Now().Add(busy)
	}
	if !soon.IsZero() && soon.After(time.Now()) && (l.next.IsZero() || soon.Before(l.next)) {
		l.next = soon
	}
	said := string(have.State) + have.Message
	if have.Reason() == "" {
		said = ""
	}
	if said != "" && said != st.said {
		l.o.Log.Error("a device is not set as configured", "kind", l.def.Kind, "device", l.a.ID, "setting", s.Name,
			"reason", have.Reason(), "configured", have.Want, "is", have.Value, "problem", have.Message)
	}
	st.said = said
}
