package main

import (
	"fmt"

	"github.com/acceld/acceld/accel"
)

// steps is how many steps each number takes, as kernel.ptx and kernel.cl have it.
const steps = 64

// work is what a device computes: steps of a linear congruential generator (Numerical Recipes, ranqd1), each mixed with
// its upper half so that no compiler can take several steps at once. Integers leave no room for rounding.
type work struct{ in, out []uint32 }

// newWork returns random numbers that nobody has computed before.
func newWork(seed uint64) *work {
	w := &work{in: make([]uint32, accel.ProofItems), out: make([]uint32, accel.ProofItems)}
	for i := range w.in {
		w.in[i] = uint32(random(seed+uint64(i)) >> 32)
	}
	return w
}

// random is one step of SplitMix64 (Steele, Lea and Flood, 2014).
func random(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// compute is what the device does with one number.
func compute(x uint32) uint32 {
	for range steps {
		x = x*1664525 + 1013904223
		x ^= x >> 16
	}
	return x
}

// compare compares what the device computed with what the processor does.
func (w *work) compare() error {
	wrong, first := 0, 0
	for i, x := range w.in {
		if w.out[i] != compute(x) {
			if wrong++; wrong == 1 {
				first = i
			}
		}
	}
	if wrong == 0 {
		return nil
	}
	return &failure{
		kind: accel.FaultWrong, name: "wrong result",
		message: fmt.Sprintf("%d of %d numbers are wrong; the first is number %d, which is %#08x and should be %#08x",
			wrong, len(w.in), first, w.out[first], compute(w.in[first])),
	}
}
