package driver

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/lock"
)

// uncleanLimit is how many loads of one driver may end uncleanly before it is not tried again.
const uncleanLimit = 2

// attempt is the marker of a load, <StateDir>/attempts/<id>.json. It is read by the next attempt, also after a crash of
// the machine: that is why it is there.
type attempt struct {
	// Open is true from before the module is given to the kernel until its devices were seen to work or it was taken
	// back.
	Open bool `json:"open"`
	// BootID and Taint are those at the time of the attempt.
	BootID string `json:"bootID"`
	Taint  uint64 `json:"taint"`
	// Hung is set when the module's initialisation did not end.
	Hung    bool `json:"hung,omitempty"`
	Unclean int  `json:"unclean"`
}

func (d *Driver) attemptName(id string) string {
	return path.Join(d.o.StateDir, "attempts", id+".json")
}

// readAttempt returns the marker of a driver; the zero value when there is none or it cannot be read, for a marker
// must not keep a driver out by itself.
func (d *Driver) readAttempt(id string) attempt {
	var a attempt
	b, err := d.h.ReadFile(d.attemptName(id))
	if err != nil || json.Unmarshal(b, &a) != nil {
		return attempt{}
	}
	return a
}

// settledAttempt counts an attempt that was never closed. An agent that was killed while the kernel went on is not an
// unclean load: it is unclean when the machine did not survive it, or the kernel oopsed, or the module hangs.
func (d *Driver) settledAttempt(id string) attempt {
	a := d.readAttempt(id)
	if !a.Open {
		return a
	}
	if a.BootID != lock.BootID(d.h) || d.endedBadly(a) {
		a.Unclean++
	}
	a.Open, a.Hung = false, false
	return a
}

// endedBadly reports whether the kernel has oopsed since an attempt of this boot, or its module hangs.
func (d *Driver) endedBadly(a attempt) bool {
	return a.Hung || kmod.Taint(d.h)&kmod.TaintDied != 0 && a.Taint&kmod.TaintDied == 0
}

// settleAttempts closes the attempts of this boot whose process was killed and after which the kernel went on: otherwise the
// next boot, which cannot know how they ended, would count them as unclean. Whoever loads holds the driver lock.
func (d *Driver) settleAttempts() {
	orphans := func() (ids []string) {
		for _, name := range d.h.Glob(path.Dir(d.attemptName("")), "*.json") {
			id := strings.TrimSuffix(path.Base(name), ".json")
			if a := d.readAttempt(id); a.Open && a.BootID == lock.BootID(d.h) && !d.endedBadly(a) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	if len(orphans()) == 0 {
		return
	}
	if d.h.MkdirAll(lock.Dir, 0o755) != nil {
		return
	}
	release, err := d.h.TryLock(lock.DriverFile(), lock.Text(d.h))
	if err != nil {
		return // one is at work
	}
	defer release()
	for _, name := range d.h.Glob("/sys/module", "*/initstate") {
		if state, err := d.h.ReadString(name); err == nil && state == kmod.StateComing {
			return // it is not known yet whether the kernel goes on
		}
	}
	for _, id := range orphans() {
		d.closeAttempt(id, false)
	}
}

// quarantined returns the problem of a driver that is not tried again, nil when it may be tried.
func (d *Driver) quarantined(id string) *accel.Problem {
	if a := d.settledAttempt(id); a.Unclean >= uncleanLimit {
		return accel.Problemf(accel.Quarantined, "%d loads of driver %q ended uncleanly", a.Unclean, id)
	}
	return nil
}

// openAttempt writes the marker before a load.
func (d *Driver) openAttempt(id string) *accel.Problem {
	a := d.settledAttempt(id)
	a.Open, a.BootID, a.Taint = true, lock.BootID(d.h), kmod.Taint(d.h)
	return d.writeAttempt(id, a)
}

func (d *Driver) writeAttempt(id string, a attempt) *accel.Problem {
	name := d.attemptName(id)
	if err := d.h.MkdirAll(path.Dir(name), 0o700); err != nil {
		return accel.ProblemOf(err, "cannot make %q", path.Dir(name))
	}
	b, err := json.Marshal(a)
	if err != nil {
		return accel.ProblemOf(err, "cannot write %q", name)
	}
	if err := d.h.WriteFile(name, append(b, '\n'), 0o600); err != nil {
		return accel.ProblemOf(err, "cannot write %q", name)
	}
	return nil
}

// hung notes that an attempt will never be closed.
func (d *Driver) hung(id string) {
	a := d.readAttempt(id)
	a.Hung = true
	if p := d.writeAttempt(id, a); p != nil {
		d.log.Warn("cannot note an unclean load", "driver", id, "problem", p)
	}
}

// closeAttempt ends an attempt: a good one leaves nothing, a refused one what came before it.
func (d *Driver) closeAttempt(id string, good bool) {
	a := d.readAttempt(id)
	if good || a.Unclean == 0 {
		if err := d.h.Remove(d.attemptName(id)); err != nil {
			d.log.Warn("cannot remove the marker of a load", "driver", id, "error", err)
		}
		return
	}
	a.Open, a.Hung = false, false
	if p := d.writeAttempt(id, a); p != nil {
		d.log.Warn("cannot close the marker of a load", "driver", id, "problem", p)
	}
}

// forgive forgets the unclean loads of a driver.
func (d *Driver) forgive(id string) *accel.Problem {
	if err := d.h.Remove(d.attemptName(id)); err != nil {
		return accel.ProblemOf(err, "cannot clear the quarantine of driver %q", id)
	}
	return nil
}
