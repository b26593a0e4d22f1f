package replica

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/controller/leader"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/yamlfile"
)

// Config is the configuration file.
type Config struct {
	// Policies says whether AcceleratorPolicies are carried out; true by default.
	Policies bool `json:"policies,omitempty"`
	// Listen is the address for the scheduler, over TLS.
	Listen string `json:"listen,omitempty"`
	TLS    TLS    `json:"tls,omitzero"`
	// Watched is the address of the page for people, health, readiness and metrics, over plain HTTP; "off" for none.
	Watched string `json:"watched,omitempty"`
	// Resources are the names of the resources by which cards are tracked. Without them the scheduler is not
	// answered.
	Resources *fit.Rules `json:"resources,omitempty"`
	// Packing is "pack" or "spread".
	Packing extender.Packing `json:"packing,omitempty"`
	// CardNodes is the number of nodes up to which each card has its own metrics.
	CardNodes *int `json:"cardNodes,omitempty"`
	// Lease is how replicas elect the leader.
	Lease Lease `json:"lease,omitzero"`
}

// TLS says where the certificates are: in a Secret or in files.
type TLS struct {
	// Secret is the name of a Secret in the controller's namespace. If that Secret is empty, the controller fills it.
	Secret         string `json:"secret,omitempty"`
	extender.Files `json:",inline"`
}

// Lease is the lease that the leader holds.
type Lease struct {
	// Namespace is that of the lease. Default: the pod's, or acceld-system.
	Namespace string `json:"namespace,omitempty"`
	// Name is that of the lease. Default: acceld-controller.
	Name string `json:"name,omitempty"`
	// Seconds is how long after its last renewal a leader counts as gone; 10 to 300.
	Seconds int `json:"seconds,omitempty"`
}

// minLease leaves room for a binding in progress when renewing has failed.
const minLease = 10

// ParseConfig reads the text of a configuration file strictly, and fills in the defaults.
func ParseConfig(data []byte) (*Config, error) {
	c := &Config{
		Policies: true, Listen: ":9443", Watched: ":9482", Packing: extender.Pack,
		Lease: Lease{
			Namespace: cmp.Or(os.Getenv("POD_NAMESPACE"), kube.Namespace), Name: "acceld-controller",
			Seconds: 15,
		},
	}
	places, _, faults := yamlfile.Read(data, c)
	if len(faults) == 0 {
		if err := c.complete(); err != nil {
			faults = places.Locate([]yamlfile.Fault{yamlfile.FaultOf(err.Error())})
		}
	}
	if len(faults) > 0 {
		return nil, errors.New(yamlfile.Join(faults))
	}
	return c, nil
}

// complete fills in the rules, and returns the first error in the values of c, as "<field>: <sentence>".
func (c *Config) complete() error {
	if c.Resources != nil {
		rules, err := c.Resources.Complete()
		if err != nil {
			return fmt.Errorf("resources: %w", err)
		}
		c.Resources = &rules
	}
	switch {
	case c.Resources == nil && !c.Policies:
		return errors.New("there is nothing to do: policies is false, and there are no resources to keep book of")
	case c.TLS.Secret != "" && c.TLS.Files != extender.Files{}:
		return errors.New("tls: a secret and files are named, and only one can hold")
	case c.Resources != nil && c.TLS.Secret == "" && (c.TLS.Cert == "" || c.TLS.Key == "" || c.TLS.ClientCA == ""):
		return errors.New("tls: a secret, or cert, key and clientCA, are needed: who may bind pods is known by a " +
			"certificate only")
	case c.Packing != extender.Pack && c.Packing != extender.Spread:
		return errors.New("packing: " + accel.NotOneOf(c.Packing, extender.Pack, extender.Spread))
	case c.Lease.Seconds < minLease:
		return fmt.Errorf("lease.seconds: %d is less than %d, the least", c.Lease.Seconds, minLease)
	case c.Lease.duration() > leader.MaxLease:
		return fmt.Errorf("lease.seconds: %d is more than %v, the most", c.Lease.Seconds, leader.MaxLease.Seconds())
	case c.Lease.Namespace == "" || c.Lease.Name == "":
		return errors.New("lease: namespace and name are needed")
	case c.CardNodes != nil && *c.CardNodes < 0:
		return errors.New("cardNodes: must not be negative")
	}
	return nil
}

// ReadConfig reads a configuration file.
func ReadConfig(file string) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("cannot use configuration %q: %w", file, err)
	}
	return c, nil
}

// Absent returns which files that the configuration or a flag names are not there, each as "<field>: <sentence>".
func (c *Config) Absent(kubeconfig string) (out []string) {
	for _, f := range []struct{ field, file string }{
		{"--kubeconfig", kubeconfig}, {"tls.cert", c.TLS.Cert}, {"tls.key", c.TLS.Key}, {"tls.clientCA", c.TLS.ClientCA},
	} {
		if f.file == "" {
			continue
		}
		if _, err := os.ReadFile(f.file); err != nil {
			out = append(out, fmt.Sprintf("%s: cannot read %q: %v; put it there, or correct the path", f.field, f.file, err))
		}
	}
	return out
}

func (l Lease) duration() time.Duration { return time.Duration(l.Seconds) * time.Second }
