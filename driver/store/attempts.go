package store

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/lock"
)

// uncleanLimit is how many loads of one driver may end uncleanly before it is no longer tried.
const uncleanLimit = 2

// Attempt is the marker of a load, <StateDir>/attempts/<id>.json. It exists for the next attempt to read, which may
// follow a crash of the machine.
type Attempt struct {
	// Open is true from before the module is given to the kernel until its devices are seen to work or it is
	// unloaded.
	Open bool `json:"open"`
	// BootID and Taint are the values at the time of the attempt.
	BootID string `json:"bootID"`
	Taint  uint64 `json:"taint"`
	// Hung is set if the module's initialisation did not end.
	Hung    bool `json:"hung,omitempty"`
	Unclean int  `json:"unclean"`
}

func (s *Attempts) name(id string) string {
	return path.Join(s.stateDir, "attempts", id+".json")
}

// Read returns the marker of a driver. It returns the zero value if there is none or if it cannot be read, because a
// bad marker alone must not keep a driver out.
func (s *Attempts) Read(id string) Attempt {
	var a Attempt
	b, err := s.h.ReadFile(s.name(id))
	if err != nil || json.Unmarshal(b, &a) != nil {
		return Attempt{}
	}
	return a
}

// settled closes an attempt that was left open, and counts it if it was unclean: if the machine did not survive it,
// the kernel oopsed, or the module hangs. If only the agent was killed while the kernel carried on, the load is not
// unclean.
func (s *Attempts) settled(id string) Attempt {
	a := s.Read(id)
	if !a.Open {
		return a
	}
	if a.BootID != lock.BootID(s.h) || s.endedBadly(a) {
		a.Unclean++
	}
	a.Open, a.Hung = false, false
	return a
}

// endedBadly reports whether the kernel has oopsed since an attempt of this boot, or its module hangs.
func (s *Attempts) endedBadly(a Attempt) bool {
	return a.Hung || kmod.Taint(s.h)&kmod.TaintDied != 0 && a.Taint&kmod.TaintDied == 0
}

// Settle closes the attempts of this boot whose process was killed while the kernel carried on. The next boot cannot
// know how they ended, and would count them as unclean. A load in progress holds the driver lock, and Settle then
// does nothing.
func (s *Attempts) Settle() {
	orphans := func() (ids []string) {
		for _, name := range s.h.Glob(path.Dir(s.name("")), "*.json") {
			id := strings.TrimSuffix(path.Base(name), ".json")
			if a := s.Read(id); a.Open && a.BootID == lock.BootID(s.h) && !s.endedBadly(a) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	if len(orphans()) == 0 {
		return
	}
	if s.h.MkdirAll(lock.Dir, 0o755) != nil {
		return
	}
	release, err := s.h.Locks().Try(lock.DriverFile(), lock.Text(s.h))
	if err != nil {
		return // a load is in progress
	}
	defer release()
	for _, name := range s.h.Glob("/sys/module", "*/initstate") {
		if state, err := s.h.ReadAttribute(name); err == nil && state == kmod.StateComing {
			return // a module is still loading: it is not known yet how that ends
		}
	}
	for _, id := range orphans() {
		s.Close(id, false)
	}
}

// Quarantined returns the problem of a driver that must not be tried again, nil if it may be tried.
func (s *Attempts) Quarantined(id string) *accel.Problem {
	if a := s.settled(id); a.Unclean >= uncleanLimit {
		return accel.Problemf(accel.Quarantined, "%d loads of driver %q ended uncleanly", a.Unclean, id)
	}
	return nil
}

// Open writes the marker before a load.
func (s *Attempts) Open(id string) *accel.Problem {
	a := s.settled(id)
	a.Open, a.BootID, a.Taint = true, lock.BootID(s.h), kmod.Taint(s.h)
	return s.write(id, a)
}

func (s *Attempts) write(id string, a Attempt) *accel.Problem {
	name := s.name(id)
	if err := s.h.MkdirAll(path.Dir(name), 0o700); err != nil {
		return accel.ProblemOf(err, "cannot make %q", path.Dir(name))
	}
	b, err := json.Marshal(a)
	if err != nil {
		return accel.ProblemOf(err, "cannot write %q", name)
	}
	if err := s.h.WriteFile(name, append(b, '\n'), 0o600); err != nil {
		return accel.ProblemOf(err, "cannot write %q", name)
	}
	return nil
}

// Hung notes that an attempt hangs and will not be closed.
func (s *Attempts) Hung(id string) {
	a := s.Read(id)
	a.Hung = true
	if p := s.write(id, a); p != nil {
		s.log.Warn("cannot note an unclean load", "driver", id, "problem", p)
	}
}

// Close ends an attempt. A good one removes the marker; a refused one keeps the count of earlier unclean loads.
func (s *Attempts) Close(id string, good bool) {
	a := s.Read(id)
	if good || a.Unclean == 0 {
		if err := s.h.Remove(s.name(id)); err != nil {
			s.log.Warn("cannot remove the marker of a load", "driver", id, "error", err)
		}
		return
	}
	a.Open, a.Hung = false, false
	if p := s.write(id, a); p != nil {
		s.log.Warn("cannot close the marker of a load", "driver", id, "problem", p)
	}
}

// Forgive clears the count of unclean loads of a driver.
func (s *Attempts) Forgive(id string) *accel.Problem {
	if err := s.h.Remove(s.name(id)); err != nil {
		return accel.ProblemOf(err, "cannot clear the quarantine of driver %q", id)
	}
	return nil
}
