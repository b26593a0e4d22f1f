package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/vendors"
)

// TestConfiguredSettings: YAML reads an unquoted on as a switch. What a definition does not allow is named.
func TestConfiguredSettings(t *testing.T) {
	const text = "kinds: {nvidia-gpu: {settings: {persistence: on, ecc: 'off', powerLimitWatts: 250}}}"
	c, problem := ParseConfig("c.yaml", []byte(text))
	if problem != nil {
		t.Fatal(problem)
	}
	defs, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	kinds, problem := c.Override(defs)
	if problem != nil {
		t.Fatal(problem)
	}
	for name, want := range map[string]accel.SettingValue{
		"persistence": "on", "ecc": "off", "powerLimitWatts": "250", "computeMode": "",
	} {
		if s, _ := kinds["nvidia-gpu"].Setting(name); s.Value != want {
			t.Errorf("%s is %q", name, s.Value)
		}
	}
	for text, want := range map[string]string{
		"{fan: 5}":                    "the definition has no such setting (there are: persistence, powerLimitWatts",
		"{computeMode: shared}":       `"shared" is not one of default, exclusive, prohibited`,
		"{persistence: [on]}":         "settings.persistence: ",
		`{powerLimitWatts: "1\n2"}`:   "settings.powerLimitWatts: ",
		"{lockedClockMHz: 1000000}":   "1000000 is above 100000",
		"{powerLimitWatts: {is: on}}": "settings.powerLimitWatts: ",
	} {
		c, problem := ParseConfig("c.yaml", []byte("kinds: {nvidia-gpu: {settings: "+text+"}}"))
		if problem == nil {
			_, problem = c.Override(defs)
		}
		if problem == nil || problem.Reason != accel.ConfigInvalid || !strings.Contains(problem.Message, want) {
			t.Errorf("%s: %v", text, problem)
		}
	}
}

// TestSettings: what the configuration sets is written to the device, shown, and taken over when it changes.
func TestSettings(t *testing.T) {
	const id = "0000:01:00.0"
	m := hosttest.New(t)
	m.AddPCI(accel.PCIDevice{Address: id, Vendor: "1234", Device: "11e8", Class: "00ff00"})
	m.Modprobe(hosttest.Driver{Module: "edu", IDs: []string{"1234:11e8"}, Node: "accelerator_edu/edu%d"})
	m.SetAttribute(id, "limit", "70") // as long as what is written: a file is not truncated
	a := assembled(t, m, "endpoint: {listen: ''}\nkubernetes: {enabled: off}\nkinds: {qemu-edu: {settings: {limitPercent: 80}}}\n")
	if s, _ := a.Kinds["qemu-edu"].Setting("limitPercent"); s.Value != "80" {
		t.Fatalf("configured is %+v", s)
	}
	a.group.Go(func() { _ = a.loop.Run(a.ctx) })
	a.group.Go(func() { _ = a.settings.Run(a.ctx) })
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		have := a.loop.Machine().Have["qemu-edu"]
		if len(have.Accelerators) == 1 && len(have.Accelerators[0].Settings) == 1 &&
			have.Accelerators[0].Settings[0] == (accel.SettingHave{
				Name: "limitPercent", Want: "80", Value: "80", State: accel.SettingApplied,
			}) && !have.Accelerators[0].WithheldBy(accel.BySettings) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%+v", have.Accelerators)
		}
	}
	if text, err := m.Host.ReadAttribute("/sys/bus/pci/devices/" + id + "/limit"); err != nil || text != "80" {
		t.Errorf("the attribute says %q, %v", text, err)
	}
	notes, err := a.Ledger.Notes("setting")
	if err != nil || len(notes) != 1 {
		t.Errorf("%+v, %v", notes, err)
	}
}
