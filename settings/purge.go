package settings

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// Program is the probe program of a kind while a purge runs.
type Program interface {
	// Settings returns what it reports about a device.
	Settings(device string) (all map[string]accel.ProbeSetting, known bool)
	Set(ctx context.Context, r accel.ProbeSet) error
	Close()
}

// PurgeOptions choose what a purge does.
type PurgeOptions struct {
	Host   *host.Host
	Ledger *ledger.Ledger
	// DryRun changes nothing.
	DryRun bool
	// Start starts the probe program of a kind.
	Start func(ctx context.Context, kind string) (Program, error)
	// Users names who has a device.
	Users func(kind, device string) []string
	// FunctionUsers names who has a virtual function of a device.
	FunctionUsers func(device string) []string
	// Write writes a text to an attribute; nil is the host's.
	Write func(name, text string) error
}

// purge is one purge of settings.
type purge struct {
	PurgeOptions
	book
	programs map[string]Program // by kind
	failed   map[string]error   // why a program does not run
}

// Purge restores what was there before acceld, of every setting that is still as acceld left it. It returns what became
// of each setting on record. It needs no agent, and no definition but that of a probe program.
func Purge(ctx context.Context, o PurgeOptions) ([]ledger.Outcome, *accel.Problem) {
	if o.Write == nil {
		o.Write = o.Host.WriteAttribute
	}
	p := &purge{
		PurgeOptions: o, book: book{ledger: o.Ledger}, programs: map[string]Program{}, failed: map[string]error{},
	}
	defer func() {
		for _, program := range p.programs {
			program.Close()
		}
	}()
	bad, err := p.load()
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot know what acceld has set on devices")
	}
	var out []ledger.Outcome
	for _, b := range bad {
		out = append(out, ledger.Outcome{
			Path: "the record of a setting", Action: ledger.Left, Reason: accel.LedgerDamaged, Detail: b,
		})
	}
	for _, key := range slices.Sorted(maps.Keys(p.records)) {
		r := p.records[key]
		result := p.undo(ctx, r)
		result.Path = path.Join(o.Host.Devices().Dir(r.Address), r.File)
		if r.File == "" {
			result.Path += ", setting " + r.Setting
		}
		out = append(out, result)
		if o.DryRun || result.Action == ledger.Left {
			continue
		}
		if err := p.drop(key, r); err != nil {
			return out, accel.ProblemOf(err, "cannot forget setting %q of device %q", r.Setting, r.Address)
		}
	}
	return out, nil
}

// undo undoes one setting.
func (p *purge) undo(ctx context.Context, r Record) ledger.Outcome {
	s := r.setting()
	bound := Binding(p.Host, r.Address)
	switch {
	case bound == 0 && r.Lasting:
		return ledger.Outcome{
			Action: ledger.Left, Reason: accel.DeviceGone,
			Detail: "its driver is not bound, and the device keeps the setting",
		}
	case bound == 0:
		return ledger.Outcome{Action: ledger.Settled, Detail: "its driver is not bound any more"}
	}
	c := Case{
		Kind: r.Kind, Address: r.Address, Setting: s, Record: &r, Binding: bound, Read: p.read(ctx, r), Calm: true,
		Now: time.Now(),
	}
	step := Decide(c)
	if step.Do == AskUsers {
		c.Asked, c.Users = true, p.users(r)
		if step = Decide(c); len(c.Users) > 0 {
			return ledger.Outcome{Action: ledger.Left, Reason: accel.InUse, Detail: step.Have.Message}
		}
	}
	switch {
	case step.Do == Forget && step.Left != "":
		return ledger.Outcome{Action: ledger.Kept, Detail: step.Left}
	case step.Do == Forget:
		return ledger.Outcome{Action: ledger.Settled}
	case step.Do != Write:
		return ledger.Outcome{Action: ledger.Left, Reason: accel.SettingFailed, Detail: step.Have.Message}
	}
	if !p.DryRun {
		if err := p.put(ctx, r, step.Text); err != nil {
			return ledger.Outcome{Action: ledger.Left, Reason: accel.SettingFailed, Detail: err.Error()}
		}
	}
	return ledger.Outcome{Action: ledger.Restored, Detail: fmt.Sprintf("it is %q again", step.Text)}
}

// users names who would be disturbed if a setting was written.
func (p *purge) users(r Record) []string {
	if r.Needs == accel.SettingNeedsFunctions {
		return p.FunctionUsers(r.Address)
	}
	return p.Users(r.Kind, r.Address)
}

// read reads what a setting is now.
func (p *purge) read(ctx context.Context, r Record) Reading {
	if r.File != "" {
		return readFile(p.Host, r.Address, r.setting(), false)
	}
	program, err := p.program(ctx, r.Kind)
	if err != nil {
		return Reading{Problem: err.Error()}
	}
	all, known := program.Settings(r.Address)
	if !known {
		return Reading{Problem: "its probe program does not know the device"}
	}
	return readTold(all, r.setting())
}

// put writes a setting, and reads it again.
func (p *purge) put(ctx context.Context, r Record, text string) error {
	if r.File == "" {
		program, err := p.program(ctx, r.Kind)
		if err != nil {
			return err
		}
		return program.Set(ctx, accel.ProbeSet{Device: r.Address, Setting: r.Setting, Value: text})
	}
	if err := writeFile(p.Host, p.Write, r.Address, r.setting(), text); err != nil {
		return err
	}
	if now := readFile(p.Host, r.Address, r.setting(), false); !accel.SameSetting(now.there(), text) {
		return fmt.Errorf("the device has taken %q and says %q", text, now.there()+now.Problem+now.Unsupported)
	}
	return nil
}

// program starts the probe program of a kind once.
func (p *purge) program(ctx context.Context, kind string) (Program, error) {
	if p.programs[kind] == nil && p.failed[kind] == nil {
		program, err := p.Start(ctx, kind)
		if err != nil {
			p.failed[kind] = fmt.Errorf("its probe program does not run: %w", err)
		} else {
			p.programs[kind] = program
		}
	}
	return p.programs[kind], p.failed[kind]
}
