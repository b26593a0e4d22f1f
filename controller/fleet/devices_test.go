package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/controller/devices"
)

// TestDevicesOnPage: what devices have been through, and that several nodes claim one.
func TestDevicesOnPage(t *testing.T) {
	o := options(nil)
	overview := devices.Overview{}
	o.Devices = func(int) (devices.Overview, bool) { return overview, true }
	if _, text := served(t, o, "/"); strings.Contains(text, `id="devices"`) {
		t.Error("a section without devices")
	}
	overview = devices.Overview{
		Total: 300, Faulty: 60, LeftOut: 2, Unreadable: 1,
		Devices: []devices.Record{{
			Kind: "qemu-edu", Serial: "A<1", Model: "EDU", Node: "n2", Address: "0000:01:00.0",
			Claimed: []string{"n2", "n3"}, Total: devices.Counts{Faults: 9, Resets: 4},
			LastFault: &devices.LastFault{
				At: noon().Add(-time.Hour), Reason: "DeviceFault", Message: "it has halted", Node: "n1",
			},
			Hosts: []devices.Host{
				{Node: "n2"}, {Node: "n1", Counts: devices.Counts{Faults: 3}, Before: devices.Counts{Faults: 2}},
			},
			Earlier: &devices.Earlier{Hosts: 2, Counts: devices.Counts{Faults: 4}},
		}, {Kind: "qemu-edu", Serial: "B", Total: devices.Counts{Faults: 1}}},
	}
	_, text := served(t, o, "/")
	for _, want := range []string{
		"300 devices on record, 60 of them with faults", "2 devices more have no record", "1 report of nodes cannot be read",
		"A&lt;1", "n2 0000:01:00.0", "claimed by 2 nodes", "n2, n3", "also on n1: 5 faults, 2 earlier: 4 faults",
		"DeviceFault", "it has halted", "nowhere", "58 more are not shown", "Several nodes say at the same time",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not on the page:\n%s", want, text)
		}
	}
	overview.Devices = overview.Devices[1:]
	if _, text := served(t, o, "/"); strings.Contains(text, "Several nodes say") {
		t.Error("nobody claims the other one")
	}
}
