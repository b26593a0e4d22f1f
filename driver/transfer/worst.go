package transfer

import (
	"strings"

	"github.com/acceld/acceld/accel"
)

// Worst chooses the reason if all places of a source failed. What was refused outranks what is missing, so that whoever
// can damage one place cannot choose what a host uses instead. Of the reasons for what is missing, RegistryDenied comes
// first, then RegistryUnreachable. The message contains all of them. There is at least one problem.
func Worst(all []*accel.Problem) *accel.Problem {
	rank := func(r accel.Reason) int {
		switch r {
		case accel.ArtifactNotFound, accel.KernelMismatch, accel.ArchMismatch:
			return 0
		case accel.RegistryUnreachable:
			return 1
		case accel.RegistryDenied:
			return 2
		}
		return 3
	}
	chosen, texts := all[0].Reason, make([]string, len(all))
	for i, p := range all {
		if rank(p.Reason) > rank(chosen) {
			chosen = p.Reason
		}
		texts[i] = p.Message
	}
	return accel.Problemf(chosen, "%s", strings.Join(texts, "; "))
}
