package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// A setting that something else has changed maxDrifts times within driftWindow is left alone: two programs would write
// against each other for ever.
const (
	maxDrifts   = 5
	driftWindow = 10 * time.Minute
)

// Reading is what a device says of a setting. The texts are those of the attribute, or of the program.
type Reading struct {
	Text string
	// Pending is what will be there after a reset, if that differs.
	Pending string
	// Blind means that the device has the setting and does not say its value.
	Blind bool
	// Least and Most are the device's own bounds; empty for none.
	Least, Most string
	// Unknown says what it takes until it is known, Problem why it cannot be read, and Unsupported why there is no such
	// setting.
	Unknown, Problem, Unsupported string
}

// there is what is set, whether or not it is in effect.
func (r Reading) there() string {
	if r.Pending != "" {
		return r.Pending
	}
	return r.Text
}

// Try is what came of the last write to a setting.
type Try struct {
	Text    string
	Binding uint64
	// Done is true if it was written, and Got what the device said then.
	Done bool
	Got  string
	// Problem says why it was not written. Next is when it is tried again.
	Problem     string
	Unsupported bool
	Failures    int
	Next        time.Time
}

// Case is what is known of one setting of a device.
type Case struct {
	Kind, Address string
	// Setting has the configured value; empty if none is configured any more.
	Setting accel.Setting
	Read    Reading
	Record  *Record // nil if nothing was written
	// Binding is that of the device's driver. Early is true shortly after it was bound.
	Binding uint64
	Early   bool
	Tried   Try
	// Drifts is how often something else has changed the value lately. Stopped is true if acceld has given in.
	Drifts  int
	Stopped bool
	// Users names who has the device, if Asked. Calm is true if it has been withheld long enough for everybody to know.
	Asked bool
	Users []string
	Calm  bool
	Now   time.Time
}

// Do is what to do next about a setting.
type Do string

// The values of Do.
const (
	Nothing  Do = ""
	AskUsers Do = "ask who has the device, and decide again"
	Confirm  Do = "note that the value is there"
	Forget   Do = "forget the record"
	Write    Do = "note the record, then write the text"
)

// Step is a decision.
type Step struct {
	Do   Do
	Text string // for Write
	// Record is noted before anything is written; nil if what is on record is right.
	Record *Record
	// Drift means that something else has changed the value. Stop means that it is left so from now on.
	Drift, Stop bool
	// Hold is why the device is offered to nobody; nil if the setting does not matter for that.
	Hold *accel.Withheld
	// Have is what people see; nil for nothing. Left says what is left as something else has set it.
	Have *accel.SettingHave
	Left string
}

// Decide returns what to do about a setting.
func Decide(c Case) Step {
	decide := keep
	if c.Setting.Value == "" {
		decide = giveBack
	}
	s := decide(c)
	if s.Have != nil {
		s.Have.Cause = functionsCause(c.Setting, *s.Have)
	}
	return s
}

// step returns a decision to do nothing, with what people see.
func (c Case) step() Step {
	have := &accel.SettingHave{Name: c.Setting.Name, Want: string(c.Setting.Value)}
	if !c.Read.Blind && c.Read.Text != "" {
		have.Value = c.Setting.Word(c.Read.Text)
	}
	return Step{Have: have}
}

func (s Step) in(state accel.SettingState, message string) Step {
	s.Have.State, s.Have.Message = state, message
	return s
}

// held withholds the device for what the setting waits for.
func (s Step) held(r accel.Reason) Step {
	s.Hold = &accel.Withheld{By: accel.BySettings, Reason: r, Message: "setting " + s.Have.String()}
	return s
}

// keep decides about a setting that is configured.
func keep(c Case) Step {
	s, r := c.step(), c.Read
	text, err := c.Setting.Text(c.Setting.Value)
	if _, word := c.Setting.Values[string(c.Setting.Value)]; err == nil && !word {
		err = c.Setting.Within(text, r.Least, r.Most)
	}
	switch {
	case r.Unknown != "" && c.Early:
		return s.in(accel.SettingWaits, "until "+r.Unknown).held(accel.SettingPending)
	case r.Unknown != "":
		return s.in(accel.SettingWaits, "until "+r.Unknown)
	case r.Unsupported != "":
		return s.in(accel.SettingUnsupported, r.Unsupported)
	case r.Problem != "":
		return s.in(accel.SettingRefused, r.Problem)
	case err != nil:
		s.Have.Cause = accel.FunctionsFewer
		return s.in(accel.SettingRefused, err.Error())
	}
	ours := c.Record != nil && accel.SameSetting(c.Record.last(), text)
	if !r.Blind && accel.SameSetting(r.there(), text) {
		s = s.in(accel.SettingApplied, "")
		if r.Pending != "" {
			s = s.in(accel.SettingWaits, "for a reset of the device, or a reboot")
		}
		if ours && (!c.Record.Done || c.Record.Binding != c.Binding || c.Record.Address != c.Address) {
			confirmed := *c.Record
			confirmed.Done, confirmed.Ours = true, []string{text}
			confirmed.Binding, confirmed.Address = c.Binding, c.Address
			s.Do, s.Record = Confirm, &confirmed
		}
		return s
	}
	if stop, waits := c.afterTry(s, text); waits {
		return stop
	}
	s.Drift = ours && c.Record.Done && c.Record.Binding == c.Binding && !r.Blind
	if s.Drift && (c.Stopped || c.Drifts >= maxDrifts) {
		s.Stop = true
		return s.in(accel.SettingGivenUp, fmt.Sprintf("something else changed it %d times within %s", maxDrifts+1,
			driftWindow))
	}
	return c.write(s, text, c.record(text))
}

// afterTry returns what people see if the last try forbids another one now.
func (c Case) afterTry(s Step, text string) (_ Step, waits bool) {
	t := c.Tried
	switch {
	case t.Text != text || t.Binding != c.Binding:
		return s, false
	case t.Unsupported:
		return s.in(accel.SettingUnsupported, t.Problem), true
	case t.Done && c.Read.Blind:
		return s.in(accel.SettingApplied, "as it was written: the device does not say it"), true
	case t.Done && !accel.SameSetting(t.Got, text) && accel.SameSetting(t.Got, c.Read.there()):
		s.Have.Cause = accel.FunctionsFewer
		return s.in(accel.SettingRefused, fmt.Sprintf("the device has taken %s and says %s", c.Setting.Word(text),
			c.Setting.Word(t.Got))), true
	case t.Problem != "" && c.Now.Before(t.Next):
		return s.in(accel.SettingRefused, t.Problem), true
	}
	return s, false
}

// write decides to write a text when the device allows it.
func (c Case) write(s Step, text string, r *Record) Step {
	what, reason := "the device", accel.DeviceHeld
	if c.Setting.Needs == accel.SettingNeedsFunctions {
		what, reason = "a virtual function of the device", accel.FunctionsInUse
	}
	if c.Setting.Needs == accel.SettingNeedsIdle || c.Setting.Needs == accel.SettingNeedsFunctions {
		switch {
		case !c.Asked:
			s.Do = AskUsers
			return s
		case len(c.Users) > 0:
			return s.in(accel.SettingWaits, "until nobody has "+what+": "+strings.Join(c.Users, ", ")).held(reason)
		case !c.Calm:
			return s.in(accel.SettingWaits, "until everybody knows that the device is withheld").held(reason)
		}
	}
	s.Do, s.Text, s.Record = Write, text, r
	return s.in(accel.SettingWaits, "to be written")
}

// record returns the record for a text that is about to be written. What was there before acceld stays what it was. A
// driver that was bound again has begun with its own value, unless it has kept acceld's.
func (c Case) record(text string) *Record {
	undo, _ := c.Setting.Text(c.Setting.Undo) // empty if there is none: the definition was validated
	r := Record{
		Kind: c.Kind, Address: c.Address, Setting: c.Setting.Name, File: c.Setting.File, Undo: undo,
		Binding: c.Binding, Lasting: c.Setting.Lasting, Needs: c.Setting.Needs,
	}
	if !c.Read.Blind {
		there := c.Read.there()
		r.Before = &there
	}
	if old := c.Record; old != nil && (old.Binding == c.Binding || old.Lasting || old.mine(c.Read.there())) {
		r.Before = old.Before
		r.Ours = slices.DeleteFunc(slices.Clone(old.Ours), func(o string) bool { return accel.SameSetting(o, text) })
		r.Ours = r.Ours[max(0, len(r.Ours)-maxOurs+1):]
	}
	r.Ours = append(r.Ours, text)
	return &r
}

// giveBack decides about a setting that is no longer configured.
func giveBack(c Case) Step {
	if c.Record == nil {
		return Step{}
	}
	s, r, old := c.step(), c.Read, *c.Record
	rebound := old.Binding != c.Binding && !old.Lasting
	back, known := old.back()
	switch {
	case r.Unknown != "":
		return s.in(accel.SettingWaits, "until "+r.Unknown)
	case r.Problem != "":
		return s.in(accel.SettingRefused, "what was there before is not restored: "+r.Problem)
	case r.Unsupported != "", rebound && (r.Blind || !old.mine(r.there())):
		return Step{Do: Forget} // what was written has ended with the driver's binding
	case !known:
		return Step{Do: Forget, Left: "it is not known what was there before"}
	case !r.Blind && accel.SameSetting(r.there(), back):
		return Step{Do: Forget}
	case !r.Blind && !old.mine(r.there()):
		return Step{Do: Forget, Left: "something else has set it to " + c.Setting.Word(r.there())}
	case r.Blind && c.Tried.Done && c.Tried.Text == back && c.Tried.Binding == c.Binding:
		return Step{Do: Forget}
	}
	if stop, waits := c.afterTry(s, back); waits {
		return stop
	}
	return c.write(s, back, nil)
}
