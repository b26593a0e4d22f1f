package extender

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/controller/fit"
)

// TestAskedTooEarly: a pod that the scheduler asked about before the extender knew of the room for it is asked about
// again. Nothing is written if nobody was refused, if it was long ago, or if the scheduler has asked again by itself.
func TestAskedTooEarly(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(l *lab)
		after  func(l *lab)
		told   int
	}{
		{"asked too early", func(*lab) {}, func(*lab) {}, 1},
		{"asked again", func(*lab) {}, func(l *lab) { l.passes(l.pods["three"]) }, 0},
		{"long ago", func(*lab) { time.Sleep(lag) }, func(*lab) {}, 0},
		{"bound meanwhile", func(*lab) {}, func(l *lab) { l.tryBind(l.pods["three"]) }, 0},
		{"nobody refused", func(l *lab) { l.forget() }, func(*lab) {}, 0},
		{"it fitted", func(l *lab) {
			l.forget()
			l.cache.DropPod(fit.NewUID("two"))
			l.passes(l.pods["three"])
		}, func(*lab) {}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := leading(t, five("one"), five("two"), five("three"))
				var told []string
				var since time.Time
				l.api.Room = func(_ context.Context, node string, at time.Time) error {
					l.mu.Lock()
					defer l.mu.Unlock()
					told, since = append(told, node), at
					return errors.New("only once")
				}
				l.list(twoCards())
				for _, name := range []string{"one", "two"} {
					if text := l.tryBind(l.pods[name]); text != "" {
						t.Fatal(text)
					}
				}
				ctx, end := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { l.retry(ctx, l.cache); close(done) }()
				time.Sleep(2 * settled)
				if l.passes(l.pods["three"]) {
					t.Fatal("the third has room")
				}
				time.Sleep(time.Millisecond)
				c.before(l)
				at := time.Now()
				l.cache.DropPod(fit.NewUID(string(l.pods["one"].UID)))
				time.Sleep(settled / 2)
				c.after(l)
				time.Sleep(10 * settled)
				end()
				<-done
				if len(told) != c.told || c.told > 0 && (told[0] != "n1" || !since.Equal(at)) {
					t.Errorf("told of %q, since %s", told, since)
				}
			})
		})
	}
}

// TestRoomOfANode: a node that gets better cards has room, too; a heartbeat gives none.
func TestRoomOfANode(t *testing.T) {
	l := leading(t)
	l.list(twoCards())
	<-l.cache.room.changed
	l.cache.SetNode(TrimNode(l.rules, twoCards()))
	select {
	case <-l.cache.room.changed:
		t.Error("a heartbeat gave room")
	default:
	}
	l.cache.SetNode(TrimNode(l.rules, lastContact()))
	select {
	case <-l.cache.room.changed:
	default:
		t.Error("other cards gave no room")
	}
}

// forget takes away what is remembered of requests.
func (l *lab) forget() {
	l.seenMu.Lock()
	defer l.seenMu.Unlock()
	clear(l.seen)
}
