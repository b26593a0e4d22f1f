package accel

import (
	"strings"
	"testing"
	"text/template"
)

// TestFillLike: what is kept from templates changes nothing else. Templates that a definition may use give the same
// bytes as text/template alone, and what text/template rejects is rejected.
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
		"{{if .}}a{{end}}", `{{.DriverVersion | and true}}`, "{{1 | print}}", `{{"x" | len | print "a"}}`, `{{ge "b" "a"}}`,
		"{{0x10}}", "{{'a'}}", "{{-3}}", "{{eq 1 2 1}}", "{{eq 1 2 3}}", `{{or 0 "" false}}`, "{{and 1 2}}", "{{print}}",
		`{{printf "%d" .DriverVersion}}`, `{{if not 0}}a{{end}}`, `{{with or .ClusterVersion "x"}}{{.}}{{end}}`,
		// refused
		"{{and}}", "{{or}}", "{{len 3}}", "{{len .}}", "{{printf 1}}", "{{print 1 | 2}}", `{{lt 1 "a"}}`, "{{not 1 2}}",
		"{{len}}", `{{len "a" "b"}}`, "{{eq 1 true}}", `{{"a" "b"}}`, "{{. 1}}", "{{$.Nonsense}}", `{{eq "a" 1 "a"}}`,
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
}

// TestRefused: a definition cannot repeat, name, call or escape anything, and an error names what it is.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{{range .DriverVersion}}{{end}}":                "cannot be used in a definition",
		"{{if .DriverVersion}}{{range 9}}{{end}}{{end}}": "cannot be used in a definition",
		"{{with 1}}{{else}}{{range 9}}{{end}}{{end}}":    "cannot be used in a definition",
		`{{define "x"}}{{end}}`:                          "cannot define templates",
		`{{block "x" .}}{{end}}`:                         "cannot define templates",
		`{{template "x"}}`:                               "cannot be used in a definition",
		"{{$x := 1}}":                                    "variables cannot be used",
		"{{if $x := 1}}{{end}}":                          "variables cannot be used",
		"{{print ($x := 1)}}":                            "variables cannot be used",
		"{{1.5}}":                                        "1.5 is not a whole number",
		"{{eq .DriverVersion nil}}":                      "nil cannot be used in a definition",
		"{{(print 1).Nonsense}}":                         "cannot be used in a definition",
		`{{html "x"}}`:                                   `"html" not defined`,
		`{{js "x"}}`:                                     `"js" not defined`,
		`{{urlquery "x"}}`:                               `"urlquery" not defined`,
		`{{index .DriverVersion 1}}`:                     `"index" not defined`,
		`{{slice .DriverVersion 1}}`:                     `"slice" not defined`,
		`{{call .DriverVersion}}`:                        `"call" not defined`,
		`{{println 1}}`:                                  `"println" not defined`,
	} {
		if _, err := ParseTemplate("field", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestBounded: a short template cannot become a long text, nor take long.
func TestBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<10)
	kib := "{{.DriverVersion}}"
	for text, want := range map[string]string{
		strings.Repeat("x", 64<<10+1):                                  "64 KiB",
		strings.Repeat(kib, 65):                                        "64 KiB",
		"{{print" + strings.Repeat(" .DriverVersion", 65) + " | len}}": "64 KiB",
		`{{printf "` + strings.Repeat("%s", 64) + `"` + strings.Repeat(" .DriverVersion", 64) + " | len}}": "64 KiB",
		`{{printf "%1000000s" "x"}}`:                        `"%1000000": a width`,
		`{{printf "%.999d" 1}}`:                             `"%.999": a width`,
		`{{printf "%-099.100s" 1}}`:                         `"%-099.100": a width`,
		`{{printf "%*s" 1000000 "x"}}`:                      `"%*": a width`,
		`{{printf "%[1]s%[1]s" .DriverVersion}}`:            `"%[": a width`,
		`{{printf "%5%%999999d" 1}}`:                        `a width`,
		`{{printf "%%%999d" 1}}`:                            `"%999": a width`,
		`{{printf "%s%%200" "x"}}`:                          "",
		strings.Repeat(kib, 64):                             "",
		`{{printf "%-99s|%.99s" "x" .DriverVersion | len}}`: "",
	} {
		x, err := ParseTemplate("field", text)
		out := ""
		if err == nil {
			out, err = x.Fill(Runtime{DriverVersion: long})
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
		if len(out) > 64<<10 {
			t.Errorf("%.40q: %d bytes", text, len(out))
		}
	}
}
