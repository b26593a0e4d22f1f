package vendors

import "github.com/acceld/acceld/accel"

// check checks the self-test.
func (c *checker) check(t accel.Check) {
	p := t.Program
	if p == nil {
		c.inside("check.file", t.File) // acceld writes to it
		if t.Want == "" {
			c.bad("check.want", "without it nothing is proven")
		}
		return
	}
	if set(t.File, t.Write, t.Want) > 0 {
		c.bad("check", "either program is possible, or file, write and want")
	}
	oneOf(c, "check.program.api", p.API, "cuda", "opencl")
	if p.Library != "" {
		c.matches("check.program.library", p.Library, libraryForm())
	}
	c.duration("check.program.timeout", p.Timeout)
	for i, v := range p.Env {
		c.matches(at("check.program.env", i), v, envForm())
	}
}
