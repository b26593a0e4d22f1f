package vendors

import (
	"maps"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// steps checks the definition's own steps.
func (c *checker) steps(def *accel.Definition) {
	for _, state := range slices.Sorted(maps.Keys(def.Steps)) {
		field := "steps." + string(state)
		oneOf(c, field, state, accel.PublishedStates()...)
		for _, m := range []accel.Moment{accel.Before, accel.After} {
			for i, s := range def.Steps[state].At(m) {
				c.step(at(field+"."+string(m), i), s)
			}
		}
	}
	seen := map[string]bool{}
	for i, s := range def.States {
		field := at("states", i)
		c.matches(field+".name", s.Name, stateForm())
		if seen[s.Name] {
			c.bad(field+".name", "%q is there twice", s.Name)
		}
		seen[s.Name] = true
		oneOf(c, field+".after", s.After, accel.PublishedStates()...)
		if len(s.Steps) == 0 {
			c.bad(field+".steps", "a state needs a step")
		}
		for j, step := range s.Steps {
			c.step(at(field+".steps", j), step)
		}
	}
}

func (c *checker) step(field string, s accel.CustomStep) {
	if s.Name == "" {
		c.bad(field+".name", "a step needs a name")
	}
	c.duration(field+".timeout", s.Timeout)
	forms := 0
	if s.Run != nil {
		forms++
		c.argv(field+".run.argv", s.Run.Argv)
	}
	if w := s.Wait; w != nil {
		forms++
		if set(w.File, w.Node, w.Unit, w.Socket, w.Pod, w.DaemonSet) != 1 {
			c.bad(field+".wait", "exactly one of file, node, unit, socket, pod and daemonSet is needed")
		}
		podName(c, field+".wait.pod", w.Pod)
		podName(c, field+".wait.daemonSet", w.DaemonSet)
		for name, file := range map[string]string{"file": w.File, "node": w.Node, "socket": w.Socket} {
			if file != "" {
				c.absolute(field+".wait."+name, file)
			}
		}
	}
	if l := s.WaitForLogs; l != nil {
		forms++
		kernel := ""
		if l.Kernel {
			kernel = "kernel"
		}
		if set(kernel, l.Unit, l.File, l.Pod, l.DaemonSet) != 1 {
			c.bad(field+".waitForLogs", "exactly one of kernel, unit, file, pod and daemonSet is needed")
		}
		podName(c, field+".waitForLogs.pod", l.Pod)
		podName(c, field+".waitForLogs.daemonSet", l.DaemonSet)
		if l.Container != "" {
			c.matches(field+".waitForLogs.container", l.Container, containerForm())
			if l.Pod+l.DaemonSet == "" {
				c.bad(field+".waitForLogs.container", "only pod and daemonSet have containers")
			}
		}
		if l.File != "" {
			c.absolute(field+".waitForLogs.file", l.File)
		}
		if l.Match == "" {
			c.bad(field+".waitForLogs.match", "an expression is needed")
		}
		c.expression(field+".waitForLogs.match", l.Match)
	}
	if v := s.Validate; v != nil {
		forms++
		c.answer(field+".validate", *v)
	}
	if forms != 1 {
		c.bad(field, "exactly one of run, wait, waitForLogs and validate is needed")
	}
}

// podName checks the name of a pod or a DaemonSet, unless it has a template.
func podName(c *checker, field, text string) {
	if text != "" && !strings.Contains(text, "{{") {
		c.matches(field, text, podForm())
	}
}

func (c *checker) answer(field string, v accel.ValidateStep) {
	switch {
	case (len(v.Argv) == 0) == (v.File == ""):
		c.bad(field, "either argv or file is needed")
	case v.File != "":
		c.attribute(field+".file", v.File)
		if v.Want == "" {
			c.bad(field+".want", "an expression is needed")
		}
		c.expression(field+".want", v.Want)
	default:
		c.argv(field+".argv", v.Argv)
		c.expression(field+".output", v.Output)
	}
}

func (c *checker) argv(field string, argv []string) {
	if len(argv) == 0 || argv[0] == "" {
		c.bad(field, "a program is needed")
		return
	}
	if strings.Contains(argv[0], "/") && !strings.HasPrefix(argv[0], "{{") {
		c.absolute(field+"[0]", argv[0])
	}
}
