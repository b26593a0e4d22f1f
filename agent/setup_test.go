package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/systemd"
	"github.com/acceld/acceld/vendors"
)

func save(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// options returns the options for a host root and a configuration file, with the built-in definitions.
func options(root, file string) SetupOptions {
	return SetupOptions{HostRoot: root, ConfigFile: file, ConfigNamed: true, Catalog: Catalog{
		Definitions: vendors.Definitions, Parse: vendors.Parse, Load: vendors.Load, MetricPages: vendors.MetricPages,
	}}
}

// opened returns the setup of a host root with a configuration.
func opened(t *testing.T, root, config string) *Setup {
	t.Helper()
	_, s := openedBy(t, root, config)
	return s
}

// openedBy is opened, with the options that it was opened by.
func openedBy(t *testing.T, root, config string) (SetupOptions, *Setup) {
	t.Helper()
	o := options(root, filepath.Join(t.TempDir(), "config.yaml"))
	save(t, o.ConfigFile, config)
	s, problem := Open(o)
	if problem != nil {
		t.Fatal(problem)
	}
	return o, s
}

// bare returns an agent with its organs but without its loop. It ends with the test.
func bare(t *testing.T, o SetupOptions, s *Setup) *Agent {
	t.Helper()
	s.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	sockets, err := systemd.ReceiveSockets(ctx, s.Log)
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(ctx, cancel, Options{SetupOptions: o}, s, sockets)
	a.restart = newHotRestart(s.Host, s.Log)
	a.organs(accel.Facts{})
	t.Cleanup(func() {
		cancel()
		a.group.Wait()
	})
	return a
}

// idle returns an agent of a fake machine with a loop that has observed nothing. None of its tasks run.
func idle(t *testing.T, m *hosttest.Machine) *Agent {
	t.Helper()
	o, s := openedBy(t, m.Host.Root(), "logLevel: error\n")
	a := bare(t, o, s)
	a.loop = loop.New(loop.Options{})
	return a
}

// assembled returns the whole agent of a fake machine with a configuration. None of its tasks run.
func assembled(t *testing.T, m *hosttest.Machine, config string) *Agent {
	t.Helper()
	o := options(m.Host.Root(), filepath.Join(t.TempDir(), "config.yaml"))
	save(t, o.ConfigFile, "logLevel: error\n"+config)
	read, problem := ReadConfig(o.ConfigFile, true)
	if problem != nil {
		t.Fatal(problem)
	}
	if o.Policies, problem = NewPolicyFeed(m.Host, read); problem != nil {
		t.Fatal(problem)
	}
	s, problem := Open(o)
	if problem != nil {
		t.Fatal(problem)
	}
	s.Log = slog.New(slog.DiscardHandler)
	sockets, err := systemd.ReceiveSockets(t.Context(), s.Log)
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(t.Context(), func() {}, Options{SetupOptions: o}, s, sockets)
	t.Cleanup(a.group.Wait) // before the directories go
	a.restart = newHotRestart(s.Host, s.Log)
	if _, err := a.assemble(accel.Facts{}); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestCompatible: an unknown page is refused with a list of the known ones.
func TestCompatible(t *testing.T) {
	if pages, problem := compatible("c.yaml", vendors.MetricPages(), Config{Compatible: []string{"gpu-operator"}}); problem != nil ||
		len(pages) != 1 {
		t.Errorf("%v, %v", pages, problem)
	}
	_, problem := compatible("c.yaml", vendors.MetricPages(), Config{Compatible: []string{"dgcm"}})
	want := fmt.Sprintf("cannot use %q: endpoint.compatible: %q is not one of dcgm, gpu-operator: did you mean \"dcgm\"?", "c.yaml", "dgcm")
	if problem == nil || problem.Reason != accel.ConfigInvalid || problem.Message != want {
		t.Errorf("%v", problem)
	}
}
