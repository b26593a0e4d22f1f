package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/yamlfile"
)

// kindForm is the form of a kind's name.
var kindForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

// parseDefinition reads a definition and returns its kind. It checks fields, types and names only. Agents check the
// rest and report it themselves: those checks would add 10 MB to this program.
func parseDefinition(data []byte) (kind string, err error) {
	var def accel.Definition
	if _, _, faults := yamlfile.Read(data, &def); len(faults) > 0 {
		return "", errors.New(yamlfile.Join(faults))
	}
	resource := def.Resource
	if def.Vendor != "" && !strings.Contains(resource, "/") {
		resource = def.Vendor + "/" + resource
	}
	switch {
	case !kindForm.MatchString(def.Kind):
		return "", fmt.Errorf("kind: %q is not <vendor>-<hardware> in lower case, such as example-npu", def.Kind)
	case accel.ResourceProblem(resource) != "":
		return "", errors.New("resource: " + accel.ResourceProblem(resource))
	case len(def.Match) == 0:
		return "", errors.New("match: it recognises nothing")
	}
	return def.Kind, nil
}
