package accel

import "time"

// Progress says how far something is that people wait for: a driver on its way to the machine. Each report of a stage has its
// Since; the last one has Ended.
type Progress struct {
	Kind  string `json:"kind"`
	Stage Stage  `json:"stage"`
	// What is at work in the stage now: an artifact, a program of a build or its last command, a module.
	What string `json:"what,omitempty"`
	// Step counts the steps of a build from 1, and Steps is how many it has; 0 while that is not known, and without steps.
	Step  int `json:"step,omitempty"`
	Steps int `json:"steps,omitempty"`
	// Done never goes back in a stage, but for another attempt. Total is 0 while it is not known. Both are in the stage's unit.
	Done  int64 `json:"done"`
	Total int64 `json:"total,omitempty"`
	// Guessed is true for a Total that another time had, which this time need not have.
	Guessed bool `json:"guessed,omitempty"`
	// Attempt is 2 and more when the attempt before failed, of which Problem says why; 0 for the first.
	Attempt int `json:"attempt,omitempty"`
	// Since is when the stage began, and Again when it began from nothing in another attempt.
	Since time.Time `json:"since"`
	Again time.Time `json:"again,omitzero"`
	Ended bool      `json:"ended,omitempty"`
	// Problem is why the stage failed, when it has ended, or its attempt before.
	Problem string `json:"problem,omitempty"`
}

// Stage is what is done for a driver.
type Stage string

// The stages, about in the order in which they come.
const (
	StageWait   Stage = "wait"   // for another acceld that does the same
	StagePull   Stage = "pull"   // out of a registry or a bundle
	StageCopy   Stage = "copy"   // the source, for a build
	StageBuild  Stage = "build"  // the programs of a build
	StageFinish Stage = "finish" // modules that were built are judged, signed and put into the store
	StagePush   Stage = "push"   // to a registry
	StageUnload Stage = "unload" // the driver of before
	StageLoad   Stage = "load"   // modules, and their devices come up
	StageProve  Stage = "prove"  // the devices compute
)

// Unit is what the stage counts; empty when it counts nothing.
func (s Stage) Unit() Unit {
	switch s {
	case StagePull, StagePush:
		return UnitByte
	case StageBuild:
		return UnitCommand
	case StageFinish, StageUnload, StageLoad:
		return UnitModule
	case StageWait, StageCopy, StageProve:
	}
	return ""
}

// Unit is the unit of a [Stage].
type Unit string

// The units.
const (
	UnitByte    Unit = "byte"
	UnitCommand Unit = "command" // of a make that says what it does: a file compiled or linked
	UnitModule  Unit = "module"
)

// Left estimates how long the stage goes on, by the mean pace of its attempt so far; false while there is too little to say it honestly: no
// total, less than five seconds, less than a twentieth, or a total that turned out to be too small.
func (p Progress) Left(now time.Time) (time.Duration, bool) {
	took := now.Sub(p.Since)
	if !p.Again.IsZero() {
		took = now.Sub(p.Again)
	}
	if p.Ended || p.Total <= 0 || p.Done <= 0 || p.Done > p.Total || p.Done*20 < p.Total || took < 5*time.Second {
		return 0, false
	}
	return time.Duration(float64(took) * float64(p.Total-p.Done) / float64(p.Done)), true
}
