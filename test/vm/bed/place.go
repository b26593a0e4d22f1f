package bed

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// places are how many guests of a cache folder run at a time, in all processes: one for each processor, and two at
// least, or two nodes could never meet. With more, what runs in each does not end in its time.
func places() []string {
	var names []string
	for i := range max(2, runtime.NumCPU()) {
		names = append(names, fmt.Sprintf("guest-%d", i+1))
	}
	return names
}

// enter waits for the places of n guests, which leave gives back. Nobody may hold one and wait for another: who comes
// first is served first, and who waits for two keeps the others waiting.
func (b *Bed) enter(ctx context.Context, n int) (leave func(), err error) {
	_, next, err := b.cache.Lock(ctx, "guest-next")
	if err != nil {
		return nil, err
	}
	defer next()
	var held []func()
	leave = sync.OnceFunc(func() {
		for _, unlock := range held {
			unlock()
		}
	})
	for range n {
		_, unlock, err := b.cache.Lock(ctx, places()...)
		if err != nil {
			leave()
			return nil, err
		}
		held = append(held, unlock)
	}
	return leave, nil
}
