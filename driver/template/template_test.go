package template

import (
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

func TestExpand(t *testing.T) {
	def := ko.Definition()
	def.Driver.Version = "1.2"
	facts := accel.Facts{
		Kernel: accel.Kernel{Release: "6.1.0", Arch: "aarch64"},
		OS:     accel.OS{ID: "rhel", VersionID: "9.4"},
	}
	facts.Cluster.Version = "1.37"
	got, problem := Fill(def, facts, "f",
		"{{.KernelVersion}} {{.OperatingSystemMajor}} {{.OperatingSystemMajorMinor}} {{.RuntimeArchitecture}} {{.HardwareResource}} {{.NodeFeature}} {{.ClusterVersion}} {{.DriverVersion}}")
	want := "6.1.0 rhel9 rhel9.4 arm64 qemu-edu feature.node.kubernetes.io/pci-1234.present 1.37 1.2"
	if problem != nil || got != want {
		t.Error(got, problem)
	}
	facts.OS = accel.OS{ID: "rhcos", VersionID: "4.14", RHEL: "9.2"}
	def.Driver.Sources = []accel.Source{{Image: "example.com/{{.OperatingSystemMajor}}:{{.OperatingSystemMajorMinor}}"}}
	if filled, problem := Expand(def, facts); problem != nil ||
		filled.Driver.Sources[0].Image != "example.com/rhel9:rhel9.2" {
		t.Errorf("on CoreOS: %+v, %v", filled.Driver.Sources, problem)
	}
}

// TestFirmwareInside: a template cannot lead out of the directory of firmware.
func TestFirmwareInside(t *testing.T) {
	def := &accel.Definition{Kind: "a-b"}
	for text, ok := range map[string]bool{
		"a/{{.HardwareResource}}.bin": true, "": true, `{{if eq .DriverVersion "2"}}a{{end}}`: true,
		`{{print "." "."}}/shadow`: false, `a/{{print "." "."}}/{{print "." "."}}/b`: false, `{{print "/"}}etc/shadow`: false,
	} {
		_, problem := Firmware(def, accel.Facts{}, accel.Module{Name: "m", Firmware: []string{text}})
		if (problem == nil) != ok {
			t.Errorf("%q: %v", text, problem)
		}
	}
}

// TestParametersConfined: a definition from the cluster gives a module no path of a program or a file.
func TestParametersConfined(t *testing.T) {
	for text, ok := range map[string]bool{"16": true, "{{.DriverVersion}}": true, "/bin/sh": false, `{{print "/"}}sh`: false} {
		m := accel.Module{Name: "m", Parameters: map[string]string{"helper": text}}
		for _, confined := range []bool{false, true} {
			_, problem := Parameters(&accel.Definition{Kind: "a-b", Confined: confined}, accel.Facts{}, m)
			if (problem == nil) != (ok || !confined) {
				t.Errorf("%q, confined %v: %v", text, confined, problem)
			}
		}
	}
}
