package accel

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// TemplateProblem fills a template of the kind [RuntimeTemplate] with the facts of an invented machine, and says what
// is wrong with it; empty if nothing is. ofDevice permits the address of a device.
func TemplateProblem(text string, ofDevice bool) string {
	if !strings.Contains(text, "{{") {
		return ""
	}
	if !ofDevice && regexp.MustCompile(`\.Address\b`).MatchString(text) {
		return fmt.Sprintf("%.256q: .Address is known only in validate.argv and where a device is named", text)
	}
	t, err := ParseTemplate("it", text)
	if err == nil {
		_, err = t.Fill(Runtime{
			KernelVersion: "6.1.0-1-amd64", OperatingSystemMajor: "debian12", OperatingSystemMajorMinor: "debian12",
			RuntimeArchitecture: "amd64", HardwareResource: "example-npu",
			NodeFeature:    "feature.node.kubernetes.io/pci-feed.present",
			ClusterVersion: "1.37", DriverVersion: "1.0", DriverBranch: "1",
		})
	}
	if err == nil {
		return ""
	}
	said := err.Error()
	m := regexp.MustCompile(`can't evaluate field (\w+)`).FindStringSubmatch(said)
	if m == nil {
		// Without what the parser adds around it.
		said = said[strings.LastIndex(said, ": ")+2:]
		if strings.Contains(said, "unclosed action") {
			said += `: close it with "}}"`
		}
		return "not a template: " + said
	}
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Runtime]()) {
		names = append(names, "."+f.Name)
	}
	return fmt.Sprintf("no variable .%s (there are: %s)%s", m[1], strings.Join(names, " "), DidYouMean("."+m[1], names))
}
