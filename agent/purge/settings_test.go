package purge

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/settings"
)

// TestPurgeOfSettings: what acceld has set is restored while the driver is bound, and named.
func TestPurgeOfSettings(t *testing.T) {
	const id = "0000:01:00.0"
	m := hosttest.New(t)
	m.AddPCI(accel.PCIDevice{Address: id, Vendor: "1234", Device: "11e8"})
	m.Modprobe(hosttest.Driver{Module: "edu", IDs: []string{"1234:11e8"}})
	m.SetAttribute(id, "limit", "80")
	log := slog.New(slog.DiscardHandler)
	l, err := ledger.Open(m.Host, "/var/lib/acceld", log)
	if err != nil {
		t.Fatal(err)
	}
	before := "55"
	for setting, r := range map[string]settings.Record{
		"limit": {File: "limit", Before: &before, Ours: []string{"80"}},
		"power": {Before: &before, Ours: []string{"80"}}, // of a kind that is no more
	} {
		r.Kind, r.Address, r.Setting, r.Binding = "qemu-edu", id, setting, settings.Binding(m.Host, id)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Note("setting", setting, string(text)); err != nil {
			t.Fatal(err)
		}
	}
	g := &purge{Setup: &agent.Setup{Host: m.Host, Ledger: l, Log: log}, dry: true}
	if problem := g.settings(t.Context()); problem != nil {
		t.Fatal(problem)
	}
	read := func() string {
		text, err := m.Host.ReadAttribute("/sys/bus/pci/devices/" + id + "/limit")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if read() != "80" || len(g.outcomes) != 2 {
		t.Errorf("a dry run: %q, %+v", read(), g.outcomes)
	}
	g.dry, g.outcomes = false, nil
	if problem := g.settings(t.Context()); problem != nil {
		t.Fatal(problem)
	}
	if o := g.outcomes; read() != before || len(o) != 2 || o[0].Action != ledger.Restored ||
		o[1].Action != ledger.Left || !strings.HasSuffix(o[1].Detail, `its probe program does not run: no definition of kind "qemu-edu" names it`) {
		t.Errorf("%q, %+v", read(), o)
	}
	if rest, err := l.Remaining(); err != nil || rest != 1 {
		t.Errorf("%d on record, %v", rest, err)
	}
}
