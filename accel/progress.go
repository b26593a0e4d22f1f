package accel

import "time"

// Progress reports the progress of one stage of the work on a driver, for people who wait. All reports of a stage
// have the same Since; the last one has Ended set.
type Progress struct {
	Kind  string `json:"kind"`
	Stage Stage  `json:"stage"`
	// What is what the stage works on now: an artifact, a program of a build or its latest command, a module.
	What string `json:"what,omitempty"`
	// Step counts the steps of a build from 1, and Steps is their number; 0 while it is unknown, and in stages
	// without steps.
	Step  int `json:"step,omitempty"`
	Steps int `json:"steps,omitempty"`
	// Done never decreases within a stage, except when a new attempt begins. Total is 0 while it is unknown. Both are
	// in the stage's unit.
	Done  int64 `json:"done"`
	Total int64 `json:"total,omitempty"`
	// Guessed is true if Total is the count of an earlier run, from which this one may differ.
	Guessed bool `json:"guessed,omitempty"`
	// Attempt is 0 for the first attempt. It is 2 or more after a failed one, and Problem then says why that one
	// failed.
	Attempt int `json:"attempt,omitempty"`
	// Since is when the stage began. Again is when the current attempt restarted from zero; zero for the first.
	Since time.Time `json:"since"`
	// Moved is when Done last changed; zero if it has not changed yet. Whoever keeps the reports fills it in.
	Moved time.Time `json:"moved,omitzero"`
	Again time.Time `json:"again,omitzero"`
	Ended bool      `json:"ended,omitempty"`
	// Problem says why the stage failed, if it has ended; otherwise why its last attempt failed.
	Problem string `json:"problem,omitempty"`
}

// Stage is a stage of the work on a driver.
type Stage string

// The stages, roughly in order.
const (
	StageWait   Stage = "wait"   // for another acceld that does the same work
	StagePull   Stage = "pull"   // from a registry or a bundle
	StageCopy   Stage = "copy"   // the source tree, for a build
	StageBuild  Stage = "build"  // the programs of a build
	StageFinish Stage = "finish" // check, sign and store the modules that were built
	StagePush   Stage = "push"   // to a registry
	StageUnload Stage = "unload" // the old driver
	StageLoad   Stage = "load"   // modules, until their devices are up
	StageProve  Stage = "prove"  // run the self-test on the devices
)

// Unit returns what the stage counts; empty if it counts nothing.
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

// Unit is what a [Stage] counts.
type Unit string

// The units.
const (
	UnitByte    Unit = "byte"
	UnitCommand Unit = "command" // commands started by make: a file compiled or linked
	UnitModule  Unit = "module"
)

// Left estimates the time left from the average speed of the current attempt. It reports false if the estimate would
// be a guess: without a total, in the first five seconds, before 5 % is done, or once the total is reached, because
// nothing counts what is still to do.
func (p Progress) Left(now time.Time) (time.Duration, bool) {
	took := now.Sub(p.Since)
	if !p.Again.IsZero() {
		took = now.Sub(p.Again)
	}
	if p.Ended || p.Total <= 0 || p.Done <= 0 || p.Done >= p.Total || p.Done*20 < p.Total || took < 5*time.Second {
		return 0, false
	}
	return time.Duration(float64(took) * float64(p.Total-p.Done) / float64(p.Done)), true
}
