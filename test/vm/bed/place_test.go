package bed

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/acceld/acceld/test/vm/cache"
)

// TestPlaces: there are as many guests as places; two nodes of one cluster wait for two and keep who comes later
// waiting.
func TestPlaces(t *testing.T) {
	t.Setenv("ACCELD_CACHE", t.TempDir())
	beds := make([]*Bed, 2)
	for i := range beds {
		dir, err := cache.Open(func(string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		beds[i] = &Bed{cache: dir}
	}
	enter := func(b *Bed, n int, d time.Duration) (func(), error) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return b.enter(ctx, n)
	}
	var leave []func()
	for i := range places() {
		l, err := enter(beds[i%2], 1, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	const moment = 300 * time.Millisecond
	if _, err := enter(beds[0], 1, moment); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more than there are places: %v", err)
	}
	leave[0]()
	leave[0]() // twice is once
	if _, err := enter(beds[0], 2, moment); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two in one place: %v", err)
	}
	pair, later := make(chan func(), 1), make(chan func(), 1)
	go func() {
		l, err := enter(beds[0], 2, time.Minute)
		if err != nil {
			t.Error(err)
		}
		pair <- l
	}()
	time.Sleep(moment)
	go func() {
		l, err := enter(beds[1], 1, time.Minute)
		if err != nil {
			t.Error(err)
		}
		later <- l
	}()
	select {
	case <-later:
		t.Error("who came later went first")
	case <-time.After(moment):
	}
	leave[1]()
	(<-pair)()
	(<-later)()
	for _, l := range leave[2:] {
		l()
	}
}
