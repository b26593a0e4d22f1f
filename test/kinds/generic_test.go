package kinds

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/health"
	"github.com/acceld/acceld/test/docs"
	"github.com/acceld/acceld/test/machines"
	"github.com/acceld/acceld/vendors"
)

func sprint(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// fiveLines is the definition that docs/vendors.md shows for a device of nobody.
func fiveLines(t *testing.T) *accel.Definition {
	t.Helper()
	text, err := os.ReadFile("../../docs/vendors.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range docs.Parse(string(text)).Blocks {
		if b.Info != "yaml definition" {
			continue
		}
		if n := strings.Count(strings.TrimSpace(b.Text), "\n") + 1; n > 5 {
			t.Errorf("the definition has %d lines, and is told to have five", n)
		}
		def, problem := vendors.Parse("example", []byte(b.Text))
		if problem != nil {
			t.Fatal(problem)
		}
		return def
	}
	t.Fatal("the page has no definition")
	return nil
}

// TestFiveLines: a device of which nothing is said but its ids, its driver and its nodes has what the kernel says of
// every device.
func TestFiveLines(t *testing.T) {
	def := fiveLines(t)
	h := machines.Unpack(t, "generic")
	facts := detect.Detect(h, detect.Options{})
	golden(t, "generic", look(t, h, def, facts))
}

// TestFiveLinesAreJudged: what PCI Express counts, the link and a temperature that the device calls critical tell its
// health.
func TestFiveLinesAreJudged(t *testing.T) {
	def := fiveLines(t)
	const id = "0000:01:00.0"
	h := machines.Unpack(t, "generic")
	e := health.New(health.Options{
		Host: h, File: "/run/acceld/health.json",
		Definitions: func() map[string]*accel.Definition { return map[string]*accel.Definition{def.Kind: def} },
	})
	judged := func() accel.Health {
		t.Helper()
		pci, _ := detect.PCI(h)
		for _, a := range e.Judge(def, pci, detect.Accelerators(h, def, pci)) {
			if a.ID == id {
				return a.Health
			}
		}
		t.Fatal("the device is gone")
		return accel.Health{}
	}
	if got := judged(); got.State != accel.Degraded || got.Reason != accel.LinkDegraded {
		t.Errorf("with 8 of 16 lanes: %+v", got)
	}
	change{"current_link_width": "16\n"}.make(t, h, id)
	if got := judged(); got.State != accel.Healthy {
		t.Errorf("with all lanes: %+v", got)
	}
	change{"aer_dev_fatal": "Undefined 0\nDLP 1\nTOTAL_ERR_FATAL 1\n"}.make(t, h, id)
	if got := judged(); got.State != accel.Unhealthy || got.Reason != accel.BusErrors {
		t.Errorf("after a fatal error of the bus: %+v", got)
	}
}

// TestDefaultsAreKnown holds the metrics that every device has, and those of every definition, to the table of the
// exporter.
func TestDefaultsAreKnown(t *testing.T) {
	known := map[string]bool{}
	for _, name := range exporter.MetricNames() {
		known[name] = true
	}
	defs := definitions(t)
	defs["default"] = &accel.Definition{}
	for kind, def := range defs {
		for _, m := range def.AllMetrics() {
			if !known[m.Name] {
				t.Errorf("%s: there is no row for %s", kind, m.Name)
			}
			if !m.Optional && kind == "default" {
				t.Errorf("%s would be missed on a device that has it not", m.Name)
			}
		}
	}
}

// BenchmarkCollect reads the metrics of eight devices, as the agent does every fifteen seconds.
func BenchmarkCollect(b *testing.B) {
	defs, problem := vendors.Definitions()
	if problem != nil {
		b.Fatal(problem)
	}
	h := machines.Unpack(b, "amd")
	def := defs["amd-gpu"]
	pci, _ := detect.PCI(h)
	accs := detect.Accelerators(h, def, pci)
	if len(accs) != 8 {
		b.Fatalf("%d devices", len(accs))
	}
	for b.Loop() {
		for _, a := range accs {
			if _, err := detect.Collect(h, def, a); err != nil {
				b.Fatal(err)
			}
		}
	}
}
