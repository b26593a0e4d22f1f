package vendors

import (
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
)

// settings checks what can be set on a device.
func settings(c *checker, def *accel.Definition) {
	for _, text := range accel.SettingProblems(def.Settings, def.Probe != nil) {
		field, problem, _ := strings.Cut(text, ": ")
		c.bad(field, "%s", problem)
	}
	for i, s := range def.Settings {
		settingFile(c, at("settings", i)+".file", s.File) // acceld writes to it
		settingFile(c, at("settings", i)+".minFile", s.MinFile)
		settingFile(c, at("settings", i)+".maxFile", s.MaxFile)
	}
}

func settingFile(c *checker, field, file string) {
	if file == "" {
		return
	}
	c.inside(field, file)
	if _, err := path.Match(file, ""); err != nil || strings.ContainsAny(file, "#|") {
		c.bad(field, "%q is not a pattern of one file", file)
	}
}
