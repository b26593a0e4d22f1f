package driver

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
)

// UpgradeStep is a step of replacing a driver, as the journal names the one that is about to be done. Each can be done
// again: a journal that is one step behind does no harm.
type UpgradeStep string

// The steps. Up to commit the old driver is the chosen one.
const (
	StepUnload  UpgradeStep = "unload"  // remove the old driver
	StepLoad    UpgradeStep = "load"    // load the new one, see its devices bound
	StepProve   UpgradeStep = "prove"   // let every device compute
	StepCommit  UpgradeStep = "commit"  // make the new one the chosen one
	StepRevert  UpgradeStep = "revert"  // remove the new one, which failed
	StepRestore UpgradeStep = "restore" // load the old one back and let it compute
	StepReject  UpgradeStep = "reject"  // note that the new one is not to be tried again
)

// UpgradeSteps returns every step, in order: first those of an upgrade that succeeds, then those of taking it back.
func UpgradeSteps() []UpgradeStep {
	return []UpgradeStep{StepUnload, StepLoad, StepProve, StepCommit, StepRevert, StepRestore, StepReject}
}

// Journal is the intent of an upgrade that is under way, <StateDir>/journal/<kind>.json: written and on the disk before
// each step, removed after the last. It is read by the next Ensure of its kind, in whatever process and after whatever
// crash: while it is there, nothing else is done about the kind's driver.
type Journal struct {
	Kind   string      `json:"kind"`
	Step   UpgradeStep `json:"step"`
	Kernel string      `json:"kernel"`
	BootID string      `json:"bootID"`
	// From is the driver that is replaced; nil when none was loaded, or when none that could be loaded back.
	From *store.Generation `json:"from,omitempty"`
	To   *store.Generation `json:"to"`
	Wish string            `json:"wish"`
	// Asked is the request that the upgrade carries out.
	Asked time.Time `json:"asked,omitzero"`
	Since time.Time `json:"since"`
	// Bad are devices that did not work with the old driver either.
	Bad []string `json:"bad,omitempty"`
	// Resumed counts how often the upgrade was interrupted and went on.
	Resumed int `json:"resumed,omitempty"`
	// Problem is why it is taken back; Fault says that the new driver is to blame.
	Problem *accel.Problem `json:"problem,omitempty"`
	Fault   bool           `json:"fault,omitempty"`
	// Stuck is why the old driver could not be loaded back.
	Stuck *accel.Problem `json:"stuck,omitempty"`
}

// journals are the upgrades of one host that are under way.
type journals struct {
	h        *host.Host
	log      *slog.Logger
	stateDir string
	point    func(string)
}

func (js *journals) file(kind string) string {
	return path.Join(js.stateDir, "journal", kind+".json")
}

// read returns the upgrade of a kind that is under way or was interrupted; nil when there is none. One that cannot be
// read is none: without it the machine is looked at as it is, and the chosen driver is still the old one.
func (js *journals) read(kind string) *Journal {
	b, err := js.h.ReadFile(js.file(kind))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			js.log.Warn("cannot read the journal of an upgrade", "kind", kind, "error", err)
		}
		return nil
	}
	var j Journal
	if err := json.Unmarshal(b, &j); err != nil || j.Kind != kind || j.To == nil {
		js.log.Warn("the journal of an upgrade cannot be used", "kind", kind, "error", err)
		return nil
	}
	return &j
}

// underway are the drivers that upgrades go from and to.
func (js *journals) underway() []*store.Generation {
	var out []*store.Generation
	for _, name := range js.h.Glob(path.Join(js.stateDir, "journal"), "*.json") {
		if j := js.read(strings.TrimSuffix(path.Base(name), ".json")); j != nil {
			out = append(out, j.From, j.To)
		}
	}
	return out
}

// write puts the journal on the disk before its step is done.
func (js *journals) write(j *Journal) *accel.Problem {
	name := js.file(j.Kind)
	js.point("journal " + string(j.Step))
	if err := js.h.MkdirAll(path.Dir(name), 0o700); err != nil {
		return accel.ProblemOf(err, "cannot make %q", path.Dir(name))
	}
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return accel.ProblemOf(err, "cannot write %q", name)
	}
	if err := js.h.WriteFile(name, append(b, '\n'), 0o600); err != nil {
		return accel.ProblemOf(err, "cannot write %q", name)
	}
	js.point("journal " + string(j.Step))
	return nil
}

// close ends an upgrade.
func (js *journals) close(j *Journal) *accel.Problem {
	js.point("journal end")
	if err := js.h.Remove(js.file(j.Kind)); err != nil {
		return accel.ProblemOf(err, "cannot remove %q", js.file(j.Kind))
	}
	js.point("journal end")
	return nil
}

// point is where a test stops the agent as kill -9 does: before and after each thing that outlives the process.
func (d *Driver) point(name string) {
	if d.stopAt != nil {
		d.stopAt(name)
	}
}
