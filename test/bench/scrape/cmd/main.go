// Command cmd serves the agent's pages of metrics over a machine that is not there, with as many devices as asked for
// and every reading that there is, and follows the pods of a kubelet below a root. It is what the benchmark of scrapes
// measures.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/exporter/holders"
	"github.com/acceld/acceld/host"
)

func main() {
	devices := flag.Int("devices", 8, "how many")
	root := flag.String("root", "", "the host's root, with the kubelet's socket")
	listen := flag.String("listen", "", "the address of the endpoint")
	flag.Parse()
	if err := run(*devices, *root, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(devices int, root, listen string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	h, err := host.New(root)
	if err != nil {
		return err
	}
	f := holders.New(holders.Options{
		Host: h, Root: func() string { return "/var/lib/kubelet" }, Active: func() bool { return true },
		Device:  func(resource, id string) (string, bool) { return id, resource == "example.com/gpu" },
		Claimed: func(string, string) (string, bool) { return "", false }, Claims: func() []holders.Hold { return nil },
	})
	go func() { _ = f.Run(ctx) }()
	s := &snapshots{devices: devices, began: time.Now()}
	e := exporter.New(exporter.Options{Machine: s.machine, Holders: f.Holdings, Process: true})
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: e.Handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	_ = server.Serve(l)
	return nil
}

// snapshots keeps the snapshot that was made last: the agent makes one for each change, not for each scrape.
type snapshots struct {
	devices int
	began   time.Time
	mu      sync.Mutex
	last    accel.Machine
}

func (s *snapshots) machine() accel.Machine {
	taken := time.Now().Truncate(15 * time.Second) // as old as the last reading of the metrics, as with the agent
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.Taken.Equal(taken) {
		s.last = machine(s.devices, s.began, taken)
	}
	return s.last
}

func machine(devices int, began, taken time.Time) accel.Machine {
	var all []accel.Accelerator
	var pci []accel.PCIDevice
	for i := range devices {
		id := fmt.Sprintf("0000:%02x:00.0", i+1)
		metrics := map[string]float64{}
		for j, name := range exporter.MetricNames() {
			metrics[name] = float64(j*1000+i) * 1.25
		}
		all = append(all, accel.Accelerator{
			ID: id, NUMANode: i % 2, Bound: "gpu", Serial: fmt.Sprintf("S%08d", i), Metrics: metrics,
			Nodes:  []accel.DeviceNode{{Path: fmt.Sprintf("/dev/gpu%d", i)}},
			Health: accel.Health{State: accel.Healthy, Since: began},
			Faults: []accel.Fault{{Code: "13", Count: 1, Last: began}},
		})
		pci = append(pci, accel.PCIDevice{
			Address: id, DeviceName: "Example GPU",
			Link: accel.Link{SpeedGTs: 16, MaxSpeedGTs: 16, Width: 16, MaxWidth: 16},
		})
	}
	return accel.Machine{
		Taken: taken, Agent: accel.Agent{Version: "0", Started: began, Node: "n"}, Facts: accel.Facts{PCI: pci},
		Want: accel.Want{Kubernetes: true, Kinds: map[string]*accel.Definition{"example-gpu": {Kind: "example-gpu"}}},
		Have: map[string]accel.Have{"example-gpu": {Accelerators: all, Driver: accel.DriverHave{
			Version: "1",
			Proven:  began,
		}, Plugin: accel.PluginHave{Allocatable: accel.Known(devices)}}},
		Status: map[string]accel.Status{"example-gpu": {State: accel.Ready, Since: began}},
	}
}
