package kinds

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVendorsMayLabel: the admission policy of the agents lets them write the labels of every vendor whose definition
// comes with acceld.
func TestVendorsMayLabel(t *testing.T) {
	policy, err := os.ReadFile("../../packaging/manifests/confine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`- name: vendors\n    expression: '\[(.*)\]'\n`).FindSubmatch(policy)
	if list == nil {
		t.Fatal("the policy has no list of vendors")
	}
	may := strings.Split(strings.ReplaceAll(string(list[1]), `"`, ""), ", ")
	for _, def := range definitions(t) {
		domain, _, _ := strings.Cut(def.Resource, "/")
		for _, of := range []string{def.Vendor, domain} {
			named := strings.Contains(string(policy), "^"+strings.ReplaceAll(of, ".", `\\.`)+"/(")
			if of != "" && !named && !slices.Contains(may, of) {
				t.Errorf("an agent may not write what is of %s, as the kind %s is", of, def.Kind)
			}
		}
	}
}
