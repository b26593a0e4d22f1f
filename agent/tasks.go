package agent

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/systemd"
)

// Task is one long-running part of the agent. Run returns when ctx ends, or earlier with nil if it has nothing left to
// do. If it fails or panics, it is run again.
type Task interface {
	Run(ctx context.Context) error
	// Ready is closed when the task does its work for the first time.
	Ready() <-chan struct{}
	String() string
}

// Serve runs the tasks until ctx ends. It calls ready once, when all tasks are ready. A task that fails is run again as
// [guard.Keep] does. The others are not affected.
func Serve(ctx context.Context, log *slog.Logger, ready func(), tasks ...Task) {
	var group guard.Group
	defer group.Wait()
	for _, t := range tasks {
		group.Keep(ctx, t.String(), t.Run)
	}
	for _, t := range tasks {
		select {
		case <-t.Ready():
		case <-ctx.Done():
			return
		}
	}
	log.Info("all tasks ready", "tasks", len(tasks))
	ready()
}

// Unready names the tasks that are not ready; empty when all are.
func Unready(tasks []Task) string {
	var names []string
	for _, t := range tasks {
		select {
		case <-t.Ready():
		default:
			names = append(names, t.String())
		}
	}
	return strings.Join(names, ", ")
}

// taskFunc is a task made from a function. It is ready at once.
type taskFunc struct {
	name  string
	run   func(ctx context.Context) error
	ready chan struct{}
	once  sync.Once
}

func newTask(name string, run func(ctx context.Context) error) *taskFunc {
	return &taskFunc{name: name, run: run, ready: make(chan struct{})}
}

func (t *taskFunc) String() string         { return t.name }
func (t *taskFunc) Ready() <-chan struct{} { return t.ready }

func (t *taskFunc) Run(ctx context.Context) error {
	t.once.Do(func() { close(t.ready) })
	return t.run(ctx)
}

// list returns the tasks of this host.
func (a *Agent) list(node string) ([]Task, error) {
	endpoint, err := a.endpoint()
	if err != nil {
		return nil, err
	}
	watchdog, err := systemd.NewWatchdog(a.notifier, a.alive)
	if err != nil {
		return nil, err
	}
	restart := a.end
	if !systemd.Supervised() {
		restart = nil
	}
	tasks := []Task{
		a.loop, newTask("kernel preflight", a.preflight.run), a.health, a.holdings, a.programs,
		watchdog,
		newTask("self-restart", func(ctx context.Context) error {
			return selfRestart(ctx, a.loop.Follow, restart, a.Log)
		}),
		newTask("hot restart", func(ctx context.Context) error {
			return a.restart.run(ctx, a.loop.Follow, a.end)
		}),
		newTask("surroundings", a.around.run),
		newTask("work in progress", a.work.run),
		newTask("kernel events", a.watcher.run),
		newTask("device resets", a.resets.run),
		newTask("device history", a.history.Run),
		newTask("device handover", a.handover.Run),
		newTask("device repair", a.repair.Run),
		newTask("device settings", a.settings.Run),
		newTask("devices given back", a.giveBack),
		newTask("devices in another use", a.switches.run),
		newTask("devices divided for claims", a.parts.run),
		newTask("use without a request", a.usage.Run),
		newTask("hooks", a.serveHooks),
		newTask("configuration", a.reloader.run),
	}
	tasks = append(tasks, endpoint...)
	if a.Config.Remote.Listen != "" {
		remote, err := a.remote(node)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, remote)
	}
	if a.kube != nil {
		tasks = append(tasks, a.kube, a.pods)
	}
	if a.kube != nil && a.Config.ResourceTopology {
		a.zones = newZones(a, node)
		tasks = append(tasks, newTask("resource topology", a.zones.run))
	}
	if policies := a.followPolicies(); policies != nil {
		tasks = append(tasks, policies)
	}
	return tasks, nil
}
