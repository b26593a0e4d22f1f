package accel

import (
	"fmt"
	"strings"
	"time"
)

// silentAfter is how long a transfer may bring nothing before people are told.
const silentAfter = 5 * time.Second

// Silent returns for how long a transfer has brought nothing; false if bytes come, or nothing is transferred.
func (p Progress) Silent(now time.Time) (time.Duration, bool) {
	switch {
	case p.Ended, p.Stage.Unit() != UnitByte, p.complete():
		return 0, false
	case p.Done > 0 && p.Moved.IsZero():
		return 0, false // nobody kept the reports
	}
	quiet := now.Sub(Latest(p.Since, p.Again, p.Moved))
	return quiet, quiet >= silentAfter
}

// complete reports whether all that the stage counts is done.
func (p Progress) complete() bool { return p.Total > 0 && p.Done >= p.Total }

// unpacks reports whether a pull has all its bytes and is still going on. It is unpacking them, which nothing counts.
func (p Progress) unpacks() bool {
	return p.Stage == StagePull && !p.Ended && p.complete()
}

// Words returns what is being done, such as "pulling".
func (p Progress) Words() string {
	if p.unpacks() {
		return "unpacking"
	}
	return p.Stage.Words()
}

// Percent returns how much is done, 0 to 100; false while that would be a guess, or while a pull unpacks.
func (p Progress) Percent() (int, bool) {
	if p.Total <= 0 || p.Done < 0 || p.Done > p.Total || p.unpacks() {
		return 0, false
	}
	return int(float64(p.Done) / float64(p.Total) * 100), true
}

// Words returns what a stage does, such as "pulling".
func (s Stage) Words() string {
	return map[Stage]string{
		StageWait: "waiting for another acceld", StagePull: "pulling", StageCopy: "copying the source",
		StageBuild: "building", StageFinish: "checking the modules", StagePush: "pushing", StageUnload: "unloading",
		StageLoad: "loading", StageProve: "proving",
	}[s]
}

// Text describes the progress of a stage for people: what it does, which step, how much is done, for how long, how long
// it takes still, and what it works on or waits for.
func (p Progress) Text(now time.Time) string {
	parts := []string{p.Words()}
	if p.Step > 0 {
		parts = append(parts, strings.TrimSuffix(fmt.Sprintf("step %d of %d", p.Step, p.Steps), " of 0"))
	}
	if amount := p.Amount(); amount != "" {
		parts = append(parts, amount)
	}
	parts = append(parts, elapsed(now.Sub(p.Since)))
	quiet, silent := p.Silent(now)
	if left, ok := p.Left(now); ok && !silent {
		parts = append(parts, "~"+elapsed(left)+" left")
	}
	if silent {
		parts = append(parts, "no byte for "+elapsed(quiet))
	}
	if p.Attempt > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d because %s", p.Attempt, p.Problem))
	}
	text := strings.Join(parts, ", ")
	if p.What != "" {
		text += ": " + p.What
	}
	return text
}

// Report describes the progress without what changes by the second, for a place where each change is a write: how much
// is done in steps of ten percent, since when, and whether a transfer brings nothing.
func (p Progress) Report(now time.Time) string {
	text := p.Words()
	if p.What != "" && p.Stage.Unit() != UnitCommand {
		text += " " + p.What
	}
	if percent, ok := p.Percent(); ok && p.Total > 1 {
		text += fmt.Sprintf(", %d %%", percent/10*10)
	}
	text += " since " + p.Since.UTC().Format(time.TimeOnly) + " UTC"
	if _, silent := p.Silent(now); silent {
		text += ", no byte comes"
	}
	return text
}

// Amount returns how much of the total is done, such as "20.4 of 95.0 MB (21 %)"; empty if the stage counts nothing.
func (p Progress) Amount() string {
	about, share := "", ""
	if p.Guessed {
		about = "~"
	}
	whole := p.Total == p.Done || p.Total == 0
	if percent, ok := p.Percent(); ok && !whole {
		share = fmt.Sprintf(" (%s%d %%)", about, percent)
	}
	switch unit := p.Stage.Unit(); {
	case unit == "" || p.Done == 0 && p.Total == 0:
		return ""
	case unit == UnitByte && whole:
		return fmt.Sprintf("%.1f MB", megabytes(p.Done))
	case unit == UnitByte:
		return fmt.Sprintf("%.1f of %.1f MB%s", megabytes(p.Done), megabytes(p.Total), share)
	case whole:
		return counted(p.Done, unit)
	case unit == UnitModule: // there are few, and a share says less than the number
		share = ""
		fallthrough
	default:
		return fmt.Sprintf("%d of %s%s%s", p.Done, about, counted(p.Total, unit), share)
	}
}

func counted(n int64, unit Unit) string {
	if n == 1 {
		return "1 " + string(unit)
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

func megabytes(n int64) float64 { return float64(n) / 1e6 }

// elapsed formats a duration for people: "8s", "1m20s".
func elapsed(d time.Duration) string { return max(d, 0).Round(time.Second).String() }
