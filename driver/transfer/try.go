package transfer

import (
	"context"
	"time"

	"github.com/acceld/acceld/pace"
)

// Attempts is how often one server is tried for one thing.
const Attempts = 3

// Try calls f until it succeeds, fails permanently or has been called [Attempts] times. Before each retry it calls
// again with the number of the attempt and the last error, and waits: pause, with jitter, before the second attempt and
// three times as long before the third.
func Try(ctx context.Context, pause time.Duration, temporary func(error) bool, again func(int, error),
	f func() error,
) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == Attempts || ctx.Err() != nil || !temporary(err) {
			return err
		}
		again(n+1, err)
		if pace.Sleep(ctx, pace.Jitter(pause)) != nil {
			return err
		}
		pause *= 3
	}
}
