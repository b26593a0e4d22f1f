package detect

import (
	"cmp"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// Collector reads the metrics of one device. With an error, it still returns the metrics that could be read.
type Collector = func(*accel.Definition, accel.Accelerator) (map[string]float64, error)

// NewTimeoutCollect returns [Collect] for drivers in which a read may hang. It gives up after two seconds and does not
// read that device again before the hanging read ends. So a hanging device delays the others of its kind by two
// seconds, once. A read that was given up returns an empty map and an error.
func NewTimeoutCollect(h *host.Host) Collector {
	return timeoutCollect(func(def *accel.Definition, a accel.Accelerator) (map[string]float64, error) {
		return Collect(h, def, a)
	})
}

func timeoutCollect(collect Collector) Collector {
	type answer struct {
		metrics map[string]float64
		err     error
	}
	var mu sync.Mutex
	reading := map[string]time.Time{} // since when, by device
	hangs := func(id string, since time.Time) (map[string]float64, error) {
		return map[string]float64{}, accel.Problemf(accel.CollectFailed, "reading %s has hung since %s", id,
			since.Format("15:04:05"))
	}
	begin := func(id string) (since time.Time, busy bool) {
		mu.Lock()
		defer mu.Unlock()
		if since, busy = reading[id]; !busy {
			since = time.Now()
			reading[id] = since
		}
		return since, busy
	}
	return func(def *accel.Definition, a accel.Accelerator) (map[string]float64, error) {
		since, busy := begin(a.ID)
		if busy {
			return hangs(a.ID, since)
		}
		done := make(chan answer, 1)
		guard.Go(func() {
			var got answer
			err := guard.Try(func() error { got.metrics, got.err = collect(def, a); return nil })
			mu.Lock()
			delete(reading, a.ID)
			mu.Unlock()
			got.err = cmp.Or(got.err, err)
			done <- got
		})
		limit := time.NewTimer(readTimeout)
		defer limit.Stop()
		select {
		case got := <-done:
			return got.metrics, got.err
		case <-limit.C:
			return hangs(a.ID, since)
		}
	}
}
