package accel

import "time"

// Progress reports how far one stage of the work on a driver is, for people who wait. All reports of a stage have the
// same Since; the last one has Ended.
type Progress struct {
	Kind  string `json:"kind"`
	Stage Stage  `json:"stage"`
	// What is what the stage works on now: an artifact, a program of a build or its latest command, a module.
	What string `json:"what,omitempty"`
	// Step counts the steps of a build from 1, and Steps is how many it has; 0 while that is not known, and without
	// steps.
	Step  int `json:"step,omitempty"`
	Steps int `json:"steps,omitempty"`
	// Done never goes back in a stage, but for another attempt. Total is 0 while it is not known. Both are in the
	// stage's unit.
	Done  int64 `json:"done"`
	Total int64 `json:"total,omitempty"`
	// Guessed is true when Total is the count of an earlier run, which this one may miss.
	Guessed bool `json:"guessed,omitempty"`
	// Attempt is 2 or more after a failed attempt, and Problem then says why that failed; 0 for the first.
	Attempt int `json:"attempt,omitempty"`
	// Since is when the stage began, and Again when the present attempt began from zero; zero for the first.
	Since time.Time `json:"since"`
	Again time.Time `json:"again,omitzero"`
	Ended bool      `json:"ended,omitempty"`
	// Problem says why the stage failed, when it has ended, else why its last attempt did.
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
	StageUnload Stage = "unload" // the old driver
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
	UnitCommand Unit = "command" // that make has begun: a file compiled or linked
	UnitModule  Unit = "module"
)

// Left estimates the time left from the average speed of the present attempt. It reports false where an estimate would
// be a guess: without a total, in the first five seconds, before 5 % is done, and when the total turned out too small.
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
