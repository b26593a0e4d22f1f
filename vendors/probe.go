package vendors

import (
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
)

// probe checks the program that watches the devices.
func (c *checker) probe(def *accel.Definition) {
	p := def.Probe
	if p == nil {
		return
	}
	c.duration("probe.silence", p.Silence)
	switch {
	case len(p.Argv) == 0 || p.Argv[0] == "":
		c.bad("probe.argv", "a program is needed")
	case !strings.Contains(p.Argv[0], "/"):
		c.matches("probe.argv[0]", p.Argv[0], programForm())
	case !path.IsAbs(p.Argv[0]) || path.Clean(p.Argv[0]) != p.Argv[0]:
		c.bad("probe.argv[0]", "%q is neither the name of a program beside the agent nor an absolute path", p.Argv[0])
	}
	if def.Driver.Binds == "" {
		c.bad("probe", "driver.binds is needed: the program runs while that driver is bound")
	}
}
