package dra

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// BenchmarkPrepare prepares and unprepares 50 claims concurrently, and reports the median and the 99th percentile of
// one call. The API server answers at once. With TMPDIR=/dev/shm no disk is involved, and the time is this package's
// own.
func BenchmarkPrepare(b *testing.B) {
	const claims = 50
	bed := newBed(b)
	p := bed.plugin(edus(claims)...)
	for i := range claims {
		bed.server.allocate(fmt.Sprintf("c%d", i), fmt.Sprintf("u-%d", i), "r="+DeviceName(edu(i+1).ID))
	}
	var prepared, taken []time.Duration
	all := func(into *[]time.Duration, do func(i int) *accel.Problem) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range claims {
			wg.Go(func() {
				begin := time.Now()
				problem := do(i)
				took := time.Since(begin)
				mu.Lock()
				defer mu.Unlock()
				*into = append(*into, took)
				if problem != nil {
					b.Error(problem)
				}
			})
		}
		wg.Wait()
	}
	for b.Loop() {
		all(&prepared, func(i int) *accel.Problem {
			_, problem := prepareOne(b.Context(), p, ref(fmt.Sprintf("c%d", i), fmt.Sprintf("u-%d", i)))
			return problem
		})
		all(&taken, func(i int) *accel.Problem { return unprepareOne(p, fmt.Sprintf("u-%d", i)) })
	}
	for name, took := range map[string][]time.Duration{"prepare": prepared, "unprepare": taken} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, name+"-p99-ms")
	}
}
