package vendors

import (
	"slices"

	"github.com/acceld/acceld/accel"
)

// userSpace checks where the libraries and programs of a driver come from.
func userSpace(c *checker, def *accel.Definition) {
	if def.Driver.UserSpace == nil {
		return
	}
	for i, s := range def.Driver.UserSpace.Sources {
		c.problems(at("driver.userSpace.sources", i), s.UserSpaceProblems())
	}
	if len(def.Container.Libraries)+len(def.Container.Programs) == 0 {
		c.bad("driver.userSpace", "container.libraries or container.programs must name something that it has")
	}
}

func (c *checker) container(def *accel.Definition) {
	for i, n := range def.Nodes {
		c.node(at("nodes", i), n, def)
	}
	e := def.Container
	for i, v := range e.Env {
		c.matches(at("container.env", i), v, envForm())
	}
	oneOf(c, "container.rdma", e.RDMA, "", accel.NICBelowPort, accel.NICBelowRoot)
	for i, m := range e.Mounts {
		c.absolute(at("container.mounts", i)+".hostPath", m.HostPath)
		c.absolute(at("container.mounts", i)+".containerPath", m.ContainerPath)
	}
	for i, l := range e.Libraries {
		field := at("container.libraries", i)
		if l.Path != "" {
			c.absolute(field+".path", l.Path)
		}
		for j, name := range l.Of("1") {
			c.matches(at(field+".names", j), name, libraryForm())
		}
		for j, name := range l.Required {
			if !slices.Contains(l.Names, name) {
				c.bad(at(field+".required", j), "%q is not among the names", name)
			}
		}
	}
	for i, p := range e.Programs {
		field := at("container.programs", i)
		if p.Path != "" {
			c.absolute(field+".path", p.Path)
		}
		for j, name := range p.Names {
			c.matches(at(field+".names", j), name, programForm())
		}
	}
	for field, nodes := range map[string][]string{
		"container.nodes":         e.Nodes,
		"container.optionalNodes": e.OptionalNodes,
	} {
		for i, n := range nodes {
			c.below(at(field, i), n, "/dev/")
		}
	}
}
