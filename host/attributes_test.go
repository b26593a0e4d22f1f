package host_test

import (
	"errors"
	"io/fs"
	"testing"
)

// TestAlternatives: the first file that exists and has a value wins; of a pattern's matches, the first in natural
// order.
func TestAlternatives(t *testing.T) {
	m := deviceMachine(t)
	for file, text := range map[string]string{
		"hwmon/hwmon10/energy1_input": "10", "hwmon/hwmon9/energy1_input": "9", "hwmon/hwmon9/name": "x",
		"hwmon/hwmon2/name": "y",
		"serial":            "", "uuid": "U1", "counts": "ue: 2\nce:\n", "tile0/gt0/freq": "1", "tile0/gt1/freq": "2",
		"tile10/gt0/freq": "4", "tile2/gt0/freq": "3",
		"dir/file": "",
	} {
		m.SetAttribute(address, file, text)
	}
	for file, want := range map[string]string{
		"hwmon/hwmon*/energy1_input":            "9", // the first that has the file, and 9 comes before 10
		"none|uuid":                             "U1",
		"serial|uuid":                           "U1",
		"uuid|serial":                           "U1",
		"counts#de|counts#ue":                   "2",
		"counts#ce|counts#ue":                   "2",
		"hwmon/hwmon*/power1_average|none|uuid": "U1",
	} {
		for range 2 { // uncached, then cached
			if got, err := m.Host.Devices().Attribute(address, file); got != want || err != nil {
				t.Errorf("%s: got %q, %v, want %q", file, got, err, want)
			}
		}
		from := m.Host.Devices().Attributes(address)
		for range 2 {
			if got, err := from.Read(file); got != want || err != nil {
				t.Errorf("%s, from a reader: got %q, %v, want %q", file, got, err, want)
			}
		}
	}
	for _, file := range []string{
		"none", "none|nothing", "hwmon/hwmon*/none", "counts#de", "counts/x", "hwmon*/x/y",
		"/sys/none/*",
	} {
		if _, err := m.Host.Devices().Attribute(address, file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want that it is not there", file, err)
		}
	}
	if got, err := m.Host.Devices().Attribute(address, "none|serial"); got != "" || err != nil {
		t.Errorf("the only one that is there says nothing: %q, %v", got, err)
	}
	if _, err := m.Host.Devices().Attribute(address, "dir|uuid"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is there and cannot be read: %v", err)
	}
	var all []string
	for _, a := range m.Host.Devices().Attributes(address).All("tile*/gt*/freq") {
		all = append(all, a.Text)
	}
	if len(all) != 4 || all[0]+all[1]+all[2]+all[3] != "1234" {
		t.Errorf("all of a pattern: %q", all)
	}
	if none := m.Host.Devices().Attributes(address).All("tile*/none"); len(none) != 1 || !errors.Is(none[0].Err, fs.ErrNotExist) {
		t.Errorf("all of nothing: %+v", none)
	}
}

// TestAttributesAreOfOneMoment: a file is read once per reader; a second reader reads it again.
func TestAttributesAreOfOneMoment(t *testing.T) {
	m := deviceMachine(t)
	m.SetAttribute(address, "counts", "ue: 1\nce: 2")
	m.SetAttribute(address, "hwmon/hwmon1/temp1_input", "1")
	from := m.Host.Devices().Attributes(address)
	if got, err := from.Read("counts#ue"); got != "1" || err != nil {
		t.Fatal(got, err)
	}
	if got, err := from.Read("hwmon/hwmon*/temp1_input"); got != "1" || err != nil {
		t.Fatal(got, err)
	}
	m.SetAttribute(address, "counts", "ue: 3\nce: 4")
	m.Remove("/sys/devices/pci0000:00/" + address + "/hwmon/hwmon1/temp1_input")
	m.SetAttribute(address, "hwmon/hwmon0/temp1_input", "0")
	if got, err := from.Read("counts#ce"); got != "2" || err != nil {
		t.Errorf("the other line of a file that was read: %q, %v", got, err)
	}
	if got, err := from.Read("hwmon/hwmon*/temp1_input"); got != "1" || err != nil {
		t.Errorf("a pattern that was looked at: %q, %v", got, err)
	}
	if got, err := m.Host.Devices().Attributes(address).Read("hwmon/hwmon*/temp1_input"); got != "0" || err != nil {
		t.Errorf("a new reader: %q, %v", got, err)
	}
}
