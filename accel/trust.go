package accel

import (
	"fmt"
	"path"
)

// Trust is the host's policy on who may sign drivers. Only the agent's configuration sets it: no definition and no
// policy of the cluster can.
type Trust struct {
	// Keys are PEM files with public keys.
	Keys []string `json:"keys,omitempty"`
	// Identities are names in certificates.
	Identities []Identity `json:"identities,omitempty"`
	// Require refuses every driver, and every source tree to build one from, that none of them signed.
	Require bool `json:"require,omitempty"`
}

// Identity is a signer whose key an authority certifies, so that the key may change.
type Identity struct {
	// Name is an e-mail address, a URI or a DNS name of the certificate.
	Name string `json:"name"`
	// Authority is a PEM file with the certificates of the authority.
	Authority string `json:"authority"`
}

// Problems returns the errors in a policy, each sentence beginning with the field; none if it is usable.
func (t Trust) Problems() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for i, k := range t.Keys {
		if !path.IsAbs(k) {
			bad("keys[%d]: %q is not an absolute path: begin it with a slash", i, k)
		}
	}
	for i, id := range t.Identities {
		if id.Name == "" {
			bad("identities[%d].name: is empty", i)
		}
		if !path.IsAbs(id.Authority) {
			bad("identities[%d].authority: %q is not an absolute path: begin it with a slash", i, id.Authority)
		}
	}
	if t.Require && len(t.Keys) == 0 && len(t.Identities) == 0 {
		bad("require: name a key or an identity, or no driver could be used")
	}
	return out
}
