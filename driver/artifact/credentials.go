package artifact

import (
	"encoding/json"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// credentials returns those for a repository from a file in the format of `docker login`. The most specific entry
// applies, as in containers-auth.json(5). Without a file or an entry, access is anonymous. Credential helpers are not
// run.
func credentials(h *host.Host, file string, repo name.Repository) (authn.Authenticator, error) {
	if file == "" {
		return authn.Anonymous, nil
	}
	text, err := h.ReadAttribute(file)
	if err != nil {
		return nil, accel.Problemf(accel.RegistryDenied, "cannot read the credentials: %v", err)
	}
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if json.Unmarshal([]byte(text), &config) != nil { // the error would quote the file
		return nil, accel.Problemf(accel.RegistryDenied,
			"cannot read the credentials in %q: not JSON as `docker login` writes it", file)
	}
	wanted := repo.RegistryStr() + "/" + repo.RepositoryStr()
	best, length := json.RawMessage(nil), -1
	for entry, raw := range config.Auths {
		prefix := serverOf(entry)
		if (wanted == prefix || strings.HasPrefix(wanted, prefix+"/")) && len(prefix) > length {
			best, length = raw, len(prefix)
		}
	}
	if best == nil {
		return authn.Anonymous, nil
	}
	var auth authn.AuthConfig
	if json.Unmarshal(best, &auth) != nil {
		return nil, accel.Problemf(accel.RegistryDenied, "cannot read the credentials for %q in %q", repo.RegistryStr(),
			file)
	}
	return authn.FromConfig(auth), nil
}

// serverOf turns an entry into a registry, or a registry with a path: old entries are URLs.
func serverOf(entry string) string {
	_, rest, isURL := strings.Cut(entry, "://")
	if !isURL {
		rest = entry
	}
	rest = strings.TrimSuffix(rest, "/")
	if isURL {
		rest = strings.TrimSuffix(strings.TrimSuffix(rest, "/v1"), "/v2")
	}
	if rest == "docker.io" {
		return name.DefaultRegistry
	}
	return rest
}
