package detect

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestHangingCollection: a device whose driver hangs is read once, and the others of its kind are read as before.
func TestHangingCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ill, well = "0000:02:00.0", "0000:01:00.0"
		hang := make(chan struct{})
		var reads atomic.Int32
		collect := timeoutCollect(func(_ *accel.Definition, a accel.Accelerator) (map[string]float64, error) {
			if a.ID == ill {
				reads.Add(1)
				<-hang
			}
			return map[string]float64{"x": 1}, nil
		})
		begin := time.Now()
		for range 3 {
			metrics, err := collect(nil, accel.Accelerator{ID: ill})
			if p := accel.AsProblem(err); len(metrics) != 0 || p.Reason != accel.CollectFailed ||
				!strings.Contains(p.Message, ill+" has hung since") {
				t.Fatalf("the one that hangs: %v, %v", metrics, err)
			}
			if metrics, err := collect(nil, accel.Accelerator{ID: well}); metrics["x"] != 1 || err != nil {
				t.Errorf("another one: %v, %v", metrics, err)
			}
		}
		if waited := time.Since(begin); waited != readTimeout || reads.Load() != 1 {
			t.Errorf("waited %v for %d reads, want %v for one", waited, reads.Load(), readTimeout)
		}
		close(hang)
		synctest.Wait()
		if metrics, err := collect(nil, accel.Accelerator{ID: ill}); metrics["x"] != 1 || err != nil ||
			reads.Load() != 2 {
			t.Errorf("when it answers again: %v, %v after %d reads", metrics, err, reads.Load())
		}
	})
}
