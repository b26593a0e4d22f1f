package agent

import (
	"errors"
	"fmt"
	"net"
	"path"
)

// RemoteConfig is the endpoint for scrapers on other machines. It serves only the pages of metrics, over TLS, to
// clients that authenticate. File names are as this process sees them.
type RemoteConfig struct {
	// Listen is the address, such as "0.0.0.0:9481"; empty for none.
	Listen string `json:"listen,omitempty"`
	// Certificate and Key are PEM files. Without both, the agent creates a certificate at each start.
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
	// ClientCA is a PEM file with the authorities whose client certificates are accepted.
	ClientCA string `json:"clientCA,omitempty"`
	// Clients are the names that client certificates may have; empty for any name.
	Clients []string `json:"clients,omitempty"`
	// Tokens also accepts clients whose bearer token the API server knows and that may get the path.
	Tokens bool `json:"tokens,omitempty"`
}

// check returns what is wrong with the values of c.
func (c RemoteConfig) check() []error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, errors.New("endpoint.remote"+field+": "+fmt.Sprintf(format, args...)))
	}
	if c.Listen == "" {
		if c.Certificate != "" || c.Key != "" || c.ClientCA != "" || len(c.Clients) > 0 || c.Tokens {
			wrong(".listen", "is missing")
		}
		return errs
	}
	if h, port, err := net.SplitHostPort(c.Listen); err != nil || port == "" || h != "" && net.ParseIP(h) == nil {
		wrong(".listen", "%q is not an address with a port, such as 0.0.0.0:9481", c.Listen)
	}
	if (c.Certificate == "") != (c.Key == "") {
		wrong("", "certificate and key must be both there, or neither")
	}
	for _, f := range []struct{ field, value string }{
		{".certificate", c.Certificate}, {".key", c.Key}, {".clientCA", c.ClientCA},
	} {
		if f.value != "" && !path.IsAbs(f.value) {
			wrong(f.field, "%q is not an absolute path: begin it with a slash", f.value)
		}
	}
	if c.ClientCA == "" && !c.Tokens {
		wrong("", "nobody would be let in: set clientCA, tokens or both")
	}
	if len(c.Clients) > 0 && c.ClientCA == "" {
		wrong(".clients", "without clientCA there are no client certificates")
	}
	return errs
}
