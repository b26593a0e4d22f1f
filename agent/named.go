package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// named is a file or a directory that the configuration names.
type named struct {
	field, path string
	// own is true for a file of this process's file system instead of the host's. dir is true for a directory.
	own, dir bool
}

// Absent returns which files and directories that the configuration names are not there, each with its line. The agent
// starts without them, because some come later, such as what a Secret brings.
func (s *Setup) Absent(file string) []*accel.Problem {
	self, err := host.New("/")
	if err != nil {
		return []*accel.Problem{accel.ProblemOf(err, "cannot look for the files that %q names", file)}
	}
	var out []*accel.Problem
	for _, n := range s.Config.named() {
		h, where := s.Host, "on the host"
		if n.own {
			h, where = self, "here"
		}
		st, err := h.Stat(n.path)
		var why string
		switch {
		case err != nil:
			why = fmt.Sprintf("cannot read %q: %v", n.path, err)
		case st.IsDir() != n.dir:
			why = fmt.Sprintf("%q is %s", n.path, map[bool]string{
				true:  "a directory, and a file is needed",
				false: "a file, and a directory is needed",
			}[st.IsDir()])
		default:
			continue
		}
		out = append(out, accel.Problemf(accel.ConfigInvalid, "%q names what is not there: %s", file,
			s.Config.at(n.field+": "+why)).ToDo("Put it %s, or correct the path.", where))
	}
	return out
}

// named lists the files and directories that must be there for what the configuration asks for. A source is not one of
// them: others may serve.
func (c Config) named() []named {
	all := []named{
		{"kubernetes.kubeconfig", c.Kubeconfig, true, false},
		{"endpoint.remote.certificate", c.Remote.Certificate, true, false},
		{"endpoint.remote.key", c.Remote.Key, true, false},
		{"endpoint.remote.clientCA", c.Remote.ClientCA, true, false},
	}
	if _, written := c.Places["definitions"]; written && c.Definitions != defaultDefinitions {
		all = append(all, named{"definitions", c.Definitions, false, true})
	}
	for i, k := range c.Trust.Keys {
		all = append(all, named{fmt.Sprintf("trust.keys[%d]", i), k, false, false})
	}
	for i, id := range c.Trust.Identities {
		all = append(all, named{fmt.Sprintf("trust.identities[%d].authority", i), id.Authority, false, false})
	}
	for i, s := range c.Prebuilt {
		all = append(all, namedBy(fmt.Sprintf("prebuilt[%d]", i), s)...)
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Kinds)) {
		d, at := c.Kinds[kind].Driver, "kinds."+kind+".driver"
		for i, s := range d.Sources {
			all = append(all, namedBy(fmt.Sprintf("%s.sources[%d]", at, i), s)...)
		}
		if d.UserSpace != nil {
			for i, s := range d.UserSpace.Sources {
				all = append(all, namedBy(fmt.Sprintf("%s.userSpace.sources[%d]", at, i), s)...)
			}
		}
		if d.Sign != nil {
			all = append(all, named{at + ".sign.key", d.Sign.Key, false, false},
				named{at + ".sign.certificate", d.Sign.Certificate, false, false})
		}
	}
	return slices.DeleteFunc(all, func(n named) bool { return n.path == "" })
}

// namedBy lists the keys and other files that a source names, on the host.
func namedBy(field string, s accel.Source) []named {
	all := []named{{field + ".ca", s.CA, false, false}, {field + ".credentials", s.Credentials, false, false}}
	for i, k := range s.Keys {
		all = append(all, named{fmt.Sprintf("%s.keys[%d]", field, i), k, false, false})
	}
	return all
}
