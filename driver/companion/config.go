package companion

import (
	"errors"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
)

// configDir has the files with the settings of companions that run, each under the name of its service.
const configDir = "/run/acceld/companions"

func configFile(unit string) string { return path.Join(configDir, unit+".conf") }

// configure writes the settings of a companion: those of its own version, with what the definition says otherwise.
func (c *Companions) configure(def *accel.Definition, w accel.Companion, root, version string) *accel.Problem {
	if w.Config == "" {
		return nil
	}
	unit := accel.CompanionUnit(def.Kind, w.Name)
	text, err := c.h.ReadFile(path.Join(root, w.Config))
	if err == nil {
		text = []byte(configured(string(text), filled(def, w, root, version, w.Settings)))
		err = errors.Join(c.h.MkdirAll(configDir, 0o755), c.h.WriteFile(configFile(unit), text, 0o644))
	}
	if err != nil {
		return accel.Problemf(accel.CompanionDown, "cannot write the settings of %q of %q: %v", w.Program, def.Kind, err)
	}
	return nil
}

// forget removes the settings of a service that has ended.
func (c *Companions) forget(unit string) {
	_ = c.h.Remove(configFile(unit)) // most have none
	_ = c.h.Remove(configDir)        // unless there is another one
}

// configured returns a text whose lines are "NAME=value" with the settings in it: in the place of the first line with
// that name, or at the end. Other lines with the name are left out.
func configured(text string, settings []string) string {
	var out strings.Builder
	done := map[string]bool{}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		setting := ""
		for _, s := range settings {
			if strings.HasPrefix(s, name+"=") {
				setting = s
			}
		}
		switch {
		case setting == "":
			out.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		case !done[name]:
			out.WriteString(setting + "\n")
			done[name] = true
		}
	}
	for _, s := range settings {
		if name, _, _ := strings.Cut(s, "="); !done[name] {
			out.WriteString(s + "\n")
		}
	}
	return out.String()
}
