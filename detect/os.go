package detect

import (
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// OS reads the distribution, and what could not be read.
func OS(h *host.Host) (accel.OS, []string) {
	var problem string
	for _, name := range osReleases() {
		text, err := h.ReadAttribute(name)
		if err != nil {
			problem = fmt.Sprintf("cannot read the distribution: %v", err)
			continue
		}
		v := assignments(text)
		o := accel.OS{ID: v["ID"], VersionID: v["VERSION_ID"], Pretty: v["PRETTY_NAME"], RHEL: v["RHEL_VERSION"]}
		if o.ID == "" {
			o.ID = "linux" // the default of os-release(5)
		}
		return o, nil
	}
	return accel.OS{}, []string{problem}
}

// assignments parses shell-like assignments, as in os-release(5) and in systemd's files of environment:
// NAME=value, NAME="va\"lue", NAME='value', and comments.
func assignments(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			quote := value[0]
			value = value[1 : n-1]
			if quote == '"' {
				value = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\$`, `$`, "\\`", "`").Replace(value)
			}
		}
		values[name] = value
	}
	return values
}
