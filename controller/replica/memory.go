package replica

import (
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// gcPercent is the share of garbage, relative to live memory, that triggers a collection. Live memory hardly changes,
// so collecting ten times as often as by default costs little: most of what is read of a node is garbage, and nodes
// are read at the start and every five minutes.
const gcPercent = 10

// leastMemory is what the Go runtime may hold in any cluster, in bytes; the pages of the program's file come on top. It
// is enough for 15,000 nodes with eight pods each.
const leastMemory = 66 << 20

// memory limits what the Go runtime holds, so that it gives back at once what the lists of a start no longer need. The
// limit follows the live memory: a larger cluster needs more, and with too little the processor would only collect
// garbage.
type memory struct{ limit atomic.Int64 }

// follow sets the limit for what is live now.
func (m *memory) follow() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	limit := int64(leastMemory)
	if sample[0].Value.Kind() == metrics.KindUint64 {
		// 10 % of garbage, and what lies between the objects and beside them
		limit = max(limit, int64(sample[0].Value.Uint64())*140/100)
	}
	const step = 1 << 20 // a new limit stops the program for a moment
	if old := m.limit.Load(); limit-old > step || old-limit > step {
		m.limit.Store(limit)
		debug.SetMemoryLimit(limit)
	}
}
