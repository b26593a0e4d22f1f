package systemd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Watchdog is a task that keeps proving to the service manager that the agent is alive. When it stops, systemd
// restarts the service.
type Watchdog struct {
	notifier *Notifier
	alive    func() error
	interval time.Duration // zero: there is no watchdog
	ready    chan struct{}
	once     sync.Once // closes ready
}

// NewWatchdog returns a Watchdog for the interval that the service manager set (WATCHDOG_USEC); without one, Run only
// waits. alive returns nil while the agent works. It is called at half the interval; if it does not return, that
// counts as an error. NewWatchdog fails if it cannot read the interval from the environment.
func NewWatchdog(n *Notifier, alive func() error) (*Watchdog, error) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("cannot read the watchdog's interval: %w", err)
	}
	return newWatchdog(n, alive, interval), nil
}

func newWatchdog(n *Notifier, alive func() error, interval time.Duration) *Watchdog {
	return &Watchdog{notifier: n, alive: alive, interval: interval, ready: make(chan struct{})}
}

// String returns the name of the task.
func (w *Watchdog) String() string { return "watchdog" }

// Ready is closed as soon as Run is running.
func (w *Watchdog) Ready() <-chan struct{} { return w.ready }

// Run notifies the service manager at half the interval for as long as the agent is alive, until ctx ends.
func (w *Watchdog) Run(ctx context.Context) error {
	w.once.Do(func() { close(w.ready) })
	if w.interval <= 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(w.interval / 2)
	defer ticker.Stop()
	silent := false
	for {
		err := w.alive()
		if err == nil {
			w.notifier.tell(daemon.SdNotifyWatchdog)
		} else if !silent {
			w.notifier.log.Error("not alive, the service manager will restart the agent", "err", err, "within",
				w.interval)
		}
		silent = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
