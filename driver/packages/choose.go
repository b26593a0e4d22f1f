package packages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
)

// candidate is a package that a repository lists.
type candidate struct {
	name, version, architecture string
	file                        string // relative to the URL of the repository, or of the host
	digest                      transfer.Digest
	size                        int64
}

// listing is what a repository has of the wanted packages.
type listing struct {
	all []candidate
	seen
}

// versionsShown is how many versions of a package a message lists.
const versionsShown = 10

// choose picks a candidate for each wanted package. Packages whose wanted versions begin alike get the newest version
// that all of them have. An optional package does not count there, and is left out if it does not have that version.
func choose(f Format, all []candidate, wanted []Wanted) ([]candidate, *accel.Problem) {
	byName := map[string][]candidate{}
	for _, c := range all {
		byName[c.name] = append(byName[c.name], c)
	}
	for _, list := range byName {
		slices.SortStableFunc(list, func(a, b candidate) int { return f.compare(b.version, a.version) })
	}
	required := slices.DeleteFunc(slices.Clone(wanted), func(w Wanted) bool { return w.Optional })
	groups := map[string][]string{} // of names, by the version that is wanted
	for _, w := range required {
		if !slices.ContainsFunc(byName[w.Name], func(c candidate) bool { return matches(c.version, w.Version) }) {
			return nil, absent(w, byName[w.Name])
		}
		if w.Version != "" {
			groups[w.Version] = append(groups[w.Version], w.Name)
		}
	}
	var out []candidate
	chosen := map[string]string{} // a version without revision, by the one that is wanted
	for _, w := range required {
		list := byName[w.Name]
		i := slices.IndexFunc(list, func(c candidate) bool {
			return matches(c.version, w.Version) && common(byName, groups[w.Version], c.version)
		})
		if i < 0 {
			return nil, accel.Problemf(accel.ArtifactNotFound, "no version %q is there of each of %s", w.Version,
				strings.Join(shown(byName, groups[w.Version]), "; "))
		}
		out, chosen[w.Version] = append(out, list[i]), upstream(list[i].version)
	}
	for _, w := range wanted {
		i := slices.IndexFunc(byName[w.Name], func(c candidate) bool {
			of := w.Version == "" || len(groups[w.Version]) == 0 || upstream(c.version) == chosen[w.Version]
			return matches(c.version, w.Version) && of
		})
		if w.Optional && i >= 0 {
			out = append(out, byName[w.Name][i])
		}
	}
	return out, nil
}

// common reports whether each of the packages has the version, of whatever revision.
func common(byName map[string][]candidate, names []string, version string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(byName[name], func(c candidate) bool {
			return upstream(c.version) == upstream(version)
		}) {
			return false
		}
	}
	return true
}

// inAll returns, newest first, the versions that each of the wanted packages has.
func inAll(f Format, all []candidate, wanted []Wanted) (out []string) {
	byName := map[string][]candidate{}
	var names []string
	for _, c := range all {
		byName[c.name] = append(byName[c.name], c)
	}
	for _, w := range wanted {
		if w.required() {
			names = append(names, w.Name)
		}
	}
	for _, c := range byName[names[0]] {
		if common(byName, names, c.version) {
			out = append(out, upstream(c.version))
		}
	}
	slices.SortFunc(out, func(a, b string) int { return f.compare(b, a) })
	return slices.Compact(out)
}

// absent says that a package, or a version of it, is not there, and which are.
func absent(w Wanted, have []candidate) *accel.Problem {
	if len(have) == 0 {
		return accel.Problemf(accel.ArtifactNotFound, "there is no package %q", w.Name)
	}
	return accel.Problemf(accel.ArtifactNotFound, "there is no version %q of package %q, there is %s", w.Version,
		w.Name, versions(have))
}

// versions lists those of sorted candidates.
func versions(have []candidate) string {
	var out []string
	for _, c := range have {
		out = append(out, c.version)
	}
	out = slices.Compact(out)
	if more := len(out) - versionsShown; more > 0 {
		out = append(out[:versionsShown], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

// shown lists packages with their versions.
func shown(byName map[string][]candidate, names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, fmt.Sprintf("%q (%s)", name, versions(byName[name])))
	}
	slices.SortFunc(out, cmp.Compare[string])
	return out
}
