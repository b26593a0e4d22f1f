package vendors

import (
	"strings"

	"github.com/acceld/acceld/accel"
)

// offer checks how devices are offered to pods: the name of the resource and the way of allocation.
func (c *checker) offer(def *accel.Definition) {
	c.resource("resource", def.Resource)
	if def.Rename != "" {
		c.resource("rename", def.Rename)
	}
	if def.Offered() != def.Resource && def.Offered() != def.Rename {
		c.resource("sharing.rename", def.Offered())
	}
	optional(c, "allocation", def.Allocation, accel.AllocateByPlugin, accel.AllocateByDRA)
	if def.Sharing != nil {
		c.problems("sharing", def.Sharing.Problems())
	}
	c.amounts("capacity", def.Capacity, c.attribute)
}

func (c *checker) resource(field, name string) {
	if text := accel.ResourceProblem(name); text != "" {
		c.bad(field, "%s", text)
	}
}

// problems takes what accel says is wrong with fields of a part, each "field: message".
func (c *checker) problems(part string, texts []string) {
	for _, p := range texts {
		name, text, _ := strings.Cut(p, ": ")
		c.bad(part+"."+name, "%s", text)
	}
}

// amounts checks capacities. The names are those of resource.k8s.io/v1 without a domain (DeviceMaxIDLength). A device
// may have 32 attributes and capacities in total, of which 16 may be capacities here.
func (c *checker) amounts(list string, all []accel.Capacity, attribute func(field, file string)) {
	if len(all) > 16 {
		c.bad(list, "there are more than 16")
	}
	seen := map[string]bool{}
	for i, x := range all {
		field := at(list, i)
		c.matches(field+".name", x.Name, capacityForm())
		if seen[x.Name] {
			c.bad(field+".name", "%q is there twice", x.Name)
		}
		seen[x.Name] = true
		switch {
		case (x.Value == "") == (x.File == ""):
			c.bad(field, "exactly one of value and file is needed")
		case x.File != "":
			attribute(field+".file", x.File)
		default:
			c.matches(field+".value", x.Value, accel.AmountForm())
			if x.Scale != 0 {
				c.bad(field+".scale", "is for file alone")
			}
		}
		if s := x.Share; s != nil {
			for name, text := range map[string]string{
				"default": s.Default, "min": s.Min, "max": s.Max,
				"step": s.Step,
			} {
				fits(c, field+".share."+name, text, accel.AmountForm())
			}
		}
	}
}
