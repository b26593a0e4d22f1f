package accel

import (
	"fmt"
	"slices"
	"strings"
)

// Distribution says in which repositories the driver is for one or more operating systems. A source of type
// [SourceDistribution] stands for it.
type Distribution struct {
	// OS are operating systems with their major version, such as "debian12".
	OS []string `json:"os"`
	// Sources have the modules. Without any, they are those that the distribution's own package has installed.
	Sources []Source `json:"sources,omitempty"`
	// UserSpace are the sources of the libraries and programs.
	UserSpace []Source `json:"userSpace,omitempty"`
}

// On returns def for a host with an operating system, such as "debian12": each source of type distribution is replaced
// by what the definition has for that system. If it has nothing, the source stays and reports that when it is asked,
// and so does the source of the modules if it has only the user space. Def is not changed.
func (def *Definition) On(os string) *Definition {
	i := slices.IndexFunc(def.Driver.Distributions, func(d Distribution) bool { return slices.Contains(d.OS, os) })
	if i < 0 {
		return def
	}
	here := def.Driver.Distributions[i]
	out := *def
	if len(here.Sources) > 0 {
		out.Driver.Sources = inPlace(def.Driver.Sources, here.Sources)
	}
	if u := def.Driver.UserSpace; u != nil {
		list := u.Sources
		if len(list) == 0 && slices.ContainsFunc(def.Driver.Sources, Source.ofDistribution) {
			list = def.UserSpaceSources()
		}
		out.Driver.UserSpace = u.from(inPlace(list, here.UserSpace))
	}
	return &out
}

// inPlace returns list with each source of type distribution replaced by the sources in of.
func inPlace(list, of []Source) (out []Source) {
	for _, s := range list {
		if s.ofDistribution() {
			out = append(out, of...)
			continue
		}
		out = append(out, s)
	}
	return out
}

func (s Source) ofDistribution() bool { return s.Type == SourceDistribution }

// NoDistribution says for people that def has nothing for an operating system.
func (def *Definition) NoDistribution(os string) string {
	var known []string
	for _, d := range def.Driver.Distributions {
		if len(d.Sources) > 0 {
			known = append(known, d.OS...)
		} else if slices.Contains(d.OS, os) {
			return fmt.Sprintf("the definition of %q knows only the user space of %s: install the modules from the "+
				"distribution's packages", def.Kind, os)
		}
	}
	return fmt.Sprintf("the definition of %q does not say where %s has the driver; it knows %s", def.Kind, os,
		strings.Join(known, ", "))
}

// distributionMisfit returns what is wrong with the sources of type distribution, as "<field>: <sentence>"; empty if
// nothing is.
func distributionMisfit(def *Definition) string {
	u := def.Driver.UserSpace
	modules := slices.ContainsFunc(def.Driver.Sources, Source.ofDistribution)
	switch {
	case !modules && !slices.ContainsFunc(u.sources(), Source.ofDistribution):
		return ""
	case len(def.Driver.Distributions) == 0:
		return "driver.sources: the definition does not say where a distribution has the driver"
	case modules && def.Driver.Version == "" && def.Driver.Branch == "":
		return "driver.version: a source of type distribution needs a version or a branch, because repositories have several versions"
	}
	return ""
}

// DistributionProblems returns the errors in what a definition says of distributions, each as "[<index>].<field>:
// <sentence>".
func DistributionProblems(list []Distribution) (out []string) {
	seen := map[string]bool{}
	for i, d := range list {
		bad := func(format string, args ...any) {
			out = append(out, fmt.Sprintf("[%d].", i)+fmt.Sprintf(format, args...))
		}
		if len(d.OS) == 0 {
			bad("os: at least one is needed, such as debian12")
		}
		for _, os := range d.OS {
			if seen[os] {
				bad("os: %q is there twice", os)
			}
			seen[os] = true
		}
		if len(d.Sources)+len(d.UserSpace) == 0 {
			bad("sources: at least one is needed, or one of userSpace")
		}
		check := func(field string, list []Source, problems func(Source) []string) {
			for j, s := range list {
				if s.ofDistribution() {
					bad("%s[%d].type: %q stands for this list and cannot be in it", field, j, s.Type)
				}
				for _, text := range problems(s) {
					bad("%s[%d].%s", field, j, text)
				}
			}
		}
		check("sources", d.Sources, Source.Problems)
		check("userSpace", d.UserSpace, Source.UserSpaceProblems)
	}
	return out
}
