package driver

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

// TestRefusedForFirmware has a row for each kernel message about a device that its driver refuses: the problem names
// missing firmware and the package that has it.
func TestRefusedForFirmware(t *testing.T) {
	const direct = "4,2,2,-;edu 0000:01:00.0: Direct firmware load for edu/fw.bin failed with error -2\n SUBSYSTEM=pci\n"
	const probe = "3,9,9,-;edu: probe of 0000:01:00.0 failed with error -2\n SUBSYSTEM=pci\n"
	for _, c := range []struct {
		name, log string
		os        accel.OS
		there     bool
		reason    accel.Reason
		says      string
	}{
		{
			"the kernel says it", direct + probe,
			accel.OS{ID: "debian", VersionID: "13"},
			false, accel.FirmwareMissing,
			`it needs firmware "edu/fw.bin", which is not below /lib/firmware; package "firmware-edu" has it`,
		},
		{
			"on a release with a package of its own", direct + probe,
			accel.OS{ID: "debian", VersionID: "12.4"},
			false,
			accel.FirmwareMissing, `; package "firmware-misc" has it`,
		},
		{
			"on a system that is made of another", direct + probe,
			accel.OS{ID: "rhcos", VersionID: "4.14", RHEL: "9.2"},
			false, accel.FirmwareMissing, `; package "firmware-of-nine" has it`,
		},
		{
			"on another system", direct + probe,
			accel.OS{ID: "x"},
			false, accel.FirmwareMissing,
			`; package "linux-firmware" has it`,
		},
		{
			"the last file of several", strings.Replace(direct, "fw.bin", "extra.bin", 1) + direct,
			accel.OS{ID: "x"},
			false, accel.FirmwareMissing, `"edu/fw.bin"`,
		},
		{
			"in Debian's words", "3,2,2,-;edu 0000:01:00.0: firmware: failed to load edu/fw.bin (-2)\n" + probe,
			accel.OS{ID: "debian"},
			false, accel.FirmwareMissing, `"edu/fw.bin"`,
		},
		{
			"in Debian's words, without a file",
			"3,2,2,-;[drm:edu_pci_probe [edu]] *ERROR* edu requires firmware installed\n" + probe,
			accel.OS{ID: "debian"},
			false, accel.FirmwareMissing,
			`no firmware for it is installed; package "firmware-edu" has it`,
		},
		{
			"in Debian's words, of another driver",
			"3,2,2,-;[drm:other_pci_probe [other]] *ERROR* other requires firmware installed\n" + probe,
			accel.OS{ID: "debian"},
			false, accel.ProbeFailed, "failed with error",
		},
		{"it is there now", direct + probe, accel.OS{ID: "debian"}, true, accel.ProbeFailed, "failed with error"},
		{
			"of another device", strings.Replace(direct, "0000:01", "0000:07", 1) + probe,
			accel.OS{ID: "debian"},
			false,
			accel.ProbeFailed, "failed with error",
		},
		{
			"a process says it", strings.Replace(direct, "4,", "12,", 1) + probe,
			accel.OS{ID: "debian"},
			false,
			accel.ProbeFailed, "failed with error",
		},
		{"another error", probe, accel.OS{ID: "debian"}, false, accel.ProbeFailed, "failed with error -2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.failProbe[ko.Device] = true
			m.onLoad = func(name string) {
				if name == "edu" {
					m.Write("/dev/kmsg", c.log)
				}
			}
			if c.there {
				m.Write("/lib/firmware/edu/fw.bin", "x")
			}
			m.Install("updates/edu.ko", ko.Edu())
			def := ko.Definition()
			def.Driver.FirmwarePackages = map[string]string{
				"debian": "firmware-edu", "debian12": "firmware-misc",
				"rhel9": "firmware-of-nine", "*": "linux-firmware",
			}
			facts := m.Facts()
			facts.OS = c.os
			_, problem := m.driver(Options{}).Ensure(t.Context(), def, facts, m.accs())
			if problem == nil || problem.Reason != c.reason || !strings.Contains(problem.Message, c.says) {
				t.Errorf("got %v, want %s with %q", problem, c.reason, c.says)
			}
		})
	}
}

// TestFirmwarePackage: the check before a load also names the package of missing firmware, if there is one.
func TestFirmwarePackage(t *testing.T) {
	m := newMachine(t)
	m.Install("updates/edu.ko", ko.Edu())
	def := ko.Definition()
	def.Driver.Modules[0].Firmware = []string{"edu/fw.bin"}
	_, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.FirmwareMissing || strings.Contains(problem.Message, "package") {
		t.Errorf("without a package: %v", problem)
	}
	def.Driver.FirmwarePackages = map[string]string{"*": "linux-firmware"}
	_, problem = m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.FirmwareMissing || !strings.HasSuffix(problem.Message,
		`; package "linux-firmware" has it`) {
		t.Errorf("with one: %v", problem)
	}
	if len(m.loads) > 0 {
		t.Errorf("loaded %q", m.loads)
	}
}
