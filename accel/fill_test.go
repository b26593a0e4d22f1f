package accel

import (
	"strings"
	"testing"
	"text/template"
)

// TestFillLike: templates that a definition may use give the same bytes as text/template, and what text/template
// rejects is rejected.
func TestFillLike(t *testing.T) {
	r := Runtime{
		KernelVersion: "6.1.0-47-amd64", OperatingSystemMajor: "rhel9", OperatingSystemMajorMinor: "rhel9.4",
		RuntimeArchitecture: "arm64", HardwareResource: "qemu-edu", DriverVersion: "1.0",
	}
	for _, text := range []string{
		"", "plain", "{{.KernelVersion}}", "a-{{ .DriverVersion }}-b{{/* nothing */}}",
		"{{.KernelVersion}}{{.ClusterVersion}}",
		`{{if eq .RuntimeArchitecture "arm64"}}a{{else}}b{{end}}`,
		`{{if eq .RuntimeArchitecture "amd64" "arm64"}}a{{end}}`,
		`{{if ne .OperatingSystemMajor "rhel9"}}a{{else}}b{{end}}`,
		`{{if eq .DriverVersion "2.0"}}a{{else if eq .DriverVersion "1.0"}}b{{else}}c{{end}}`,
		"{{with .DriverVersion}}v{{.}}{{end}}", "{{with .ClusterVersion}}v{{.}}{{else}}none{{end}}",
		"{{with .DriverVersion}}{{$.KernelVersion}} {{.}}{{end}}",
		`{{if and .DriverVersion (not .ClusterVersion)}}a{{end}}`, `{{or .ClusterVersion .DriverVersion "x"}}`,
		`{{and .DriverVersion .ClusterVersion}}`,
		`{{printf "%s-%5s|" .DriverVersion .HardwareResource}}`, `{{print "a" "b" 3}}`,
		`{{.DriverVersion | printf "v%s"}}`, `{{len .DriverVersion}}`, `{{if lt .DriverVersion "2"}}a{{end}}`,
		`{{if gt (len .DriverVersion) 2}}long{{end}}`, `{{if le 2 2}}a{{end}}{{if ge 1 2}}b{{end}}`,
		`{{or .DriverVersion (eq 1 .DriverVersion)}}`, `{{and .ClusterVersion (eq 1 .DriverVersion)}}`,
		`{{ne true false}}`, `{{eq true true}}`,
		"a {{- .DriverVersion -}} b", "{{true}}", `{{"quoted"}}`, "{{`raw`}}",
		// refused
		"{{.Nonsense}}", "{{.DriverVersion.More}}", "{{", "{{nothing .DriverVersion}}", "{{if}}a{{end}}",
		`{{eq .DriverVersion}}`, `{{eq 1 .DriverVersion}}`, `{{printf}}`, `{{.DriverVersion "x"}}`, `{{not}}`,
		`{{lt 1}}`, `{{lt true false}}`, `{{ge false .DriverVersion}}`, `{{ne true 1}}`, "{{with .DriverVersion}}{{.KernelVersion}}{{end}}",
	} {
		var want strings.Builder
		peer, wantErr := template.New("field").Option("missingkey=error").Parse(text)
		if wantErr == nil {
			wantErr = peer.Execute(&want, r)
		}
		got := ""
		mine, err := ParseTemplate("field", text)
		if err == nil {
			got, err = mine.Fill(r)
		}
		if (err == nil) != (wantErr == nil) || err == nil && got != want.String() {
			t.Errorf("%q: %q, %v; text/template: %q, %v", text, got, err, want.String(), wantErr)
		}
	}
	for _, text := range []string{
		"{{range .DriverVersion}}{{end}}", `{{define "x"}}{{end}}`, `{{template "x"}}`,
		"{{$x := 1}}", "{{1.5}}", `{{html "x"}}`,
	} {
		mine, err := ParseTemplate("field", text)
		if err == nil {
			_, err = mine.Fill(r)
		}
		if err == nil {
			t.Errorf("%q is not refused", text)
		}
	}
}
