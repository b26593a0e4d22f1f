package driver

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/store"
)

// UpgradeStep is a step of replacing a driver. The journal names the step that is about to run. Every step can be
// repeated, so a journal that is one step behind does no harm.
type UpgradeStep string

// The steps, in order: first those of a successful upgrade, then those of a rollback. Until commit, the old driver
// remains the chosen one.
const (
	StepUnload  UpgradeStep = "unload"  // remove the old driver
	StepLoad    UpgradeStep = "load"    // load the new one and check that its devices are bound
	StepProve   UpgradeStep = "prove"   // run the self-test on every device
	StepCommit  UpgradeStep = "commit"  // make the new one the chosen one
	StepRevert  UpgradeStep = "revert"  // remove the new one, which failed
	StepRestore UpgradeStep = "restore" // load the old one again and run the self-test
	StepReject  UpgradeStep = "reject"  // note that the new one must not be tried again
)

// Journal is the intent of an upgrade in progress, <StateDir>/journal/<kind>.json. It is written and synced before
// each step, and removed after the last. The next Ensure of its kind reads it, in any process and after any crash.
// While it exists, nothing else is done about the kind's driver.
type Journal struct {
	Kind   string      `json:"kind"`
	Step   UpgradeStep `json:"step"`
	Kernel string      `json:"kernel"`
	BootID string      `json:"bootID"`
	// From is the driver that is replaced; nil if none was loaded, or none that could be loaded again.
	From *store.Generation `json:"from,omitempty"`
	To   *store.Generation `json:"to"`
	Wish string            `json:"wish"`
	// Asked is the time of the request that the upgrade carries out.
	Asked time.Time `json:"asked,omitzero"`
	Since time.Time `json:"since"`
	// Bad are devices that did not work with the old driver either.
	Bad []string `json:"bad,omitempty"`
	// Resumed counts how often the upgrade was interrupted and resumed.
	Resumed int `json:"resumed,omitempty"`
	// Problem is why the upgrade is rolled back. Fault means that the new driver is to blame.
	Problem *accel.Problem `json:"problem,omitempty"`
	Fault   bool           `json:"fault,omitempty"`
	// Stuck is why the old driver could not be loaded again, or the new one not removed.
	Stuck *accel.Problem `json:"stuck,omitempty"`
}

// journals are the upgrades in progress on one host.
type journals struct{ *Driver }

func (js journals) file(kind string) string {
	return path.Join(js.o.StateDir, "journal", kind+".json")
}

// read returns the upgrade of a kind that is in progress or was interrupted; nil if there is none. An unreadable
// journal counts as none: acceld then goes by the actual state of the machine, and the chosen driver is still the old
// one.
func (js journals) read(kind string) *Journal {
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

// underway returns the drivers that the upgrades in progress replace, and those that replace them.
func (js journals) underway() []*store.Generation {
	var out []*store.Generation
	for _, name := range js.h.Glob(path.Join(js.o.StateDir, "journal"), "*.json") {
		if j := js.read(strings.TrimSuffix(path.Base(name), ".json")); j != nil {
			out = append(out, j.From, j.To)
		}
	}
	return out
}

// write syncs the journal to disk before its step runs.
func (js journals) write(j *Journal) *accel.Problem {
	js.point("journal " + string(j.Step))
	if err := store.WriteJSON(js.h, js.file(j.Kind), j); err != nil {
		return accel.ProblemOf(err, "cannot write %q", js.file(j.Kind))
	}
	js.point("journal " + string(j.Step))
	return nil
}

// close ends an upgrade and removes its journal.
func (js journals) close(j *Journal) *accel.Problem {
	js.point("journal end")
	if err := js.h.Remove(js.file(j.Kind)); err != nil {
		return accel.ProblemOf(err, "cannot remove %q", js.file(j.Kind))
	}
	js.point("journal end")
	return nil
}

// point is where a test stops the agent like kill -9 would: before and after each effect that outlives the process.
func (d *Driver) point(name string) {
	if d.stopAt != nil {
		d.stopAt(name)
	}
}
