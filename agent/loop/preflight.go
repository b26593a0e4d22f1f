package loop

import (
	"context"

	"github.com/acceld/acceld/accel"
)

// Preflighted takes over the preflight result for a kind's driver on other kernels.
func (l *Loop) Preflighted(ctx context.Context, kind string, next map[string]accel.Readiness) {
	select {
	case l.done <- outcome{kind: kind, merge: setNext(next)}:
	case <-ctx.Done():
	}
}

func setNext(next map[string]accel.Readiness) func(*kind) {
	return func(k *kind) { k.next = next }
}
