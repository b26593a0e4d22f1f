package systemd

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Watchdog is a task that proves to the service manager that the agent is alive. When it stops proving, systemd
// restarts the service.
type Watchdog struct {
	notifier *Notifier
	alive    func() error
	interval time.Duration // zero: nobody watches
	ready    chan struct{}
}

// NewWatchdog returns a Watchdog for the interval that the service manager set (WATCHDOG_USEC); without one its Run
// only waits. alive answers nil while the agent works; it is called at half the interval, and one that does not return
// is as good as an error. It fails when the environment's interval cannot be read.
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

// String names the task.
func (w *Watchdog) String() string { return "watchdog" }

// Ready is closed as soon as Run runs.
func (w *Watchdog) Ready() <-chan struct{} { return w.ready }

// Run tells the service manager at half the interval that the agent is alive, as long as it is, until ctx ends.
func (w *Watchdog) Run(ctx context.Context) error {
	close(w.ready)
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
