package agent

import (
	"fmt"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter/remote"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/kube"
)

// remote creates the endpoint for scrapers on other machines. It serves only the pages of metrics.
func (a *Agent) remote(node string) (Task, error) {
	c := a.Config.Remote
	self, err := host.New("/")
	if err != nil {
		return nil, err
	}
	o := remote.Options{
		Files: self, Certificate: c.Certificate, Key: c.Key, ClientCA: c.ClientCA, Clients: c.Clients, Name: node,
		Log: a.Log,
	}
	if c.Tokens {
		if a.documents == nil {
			return nil, accel.Problemf(accel.ConfigInvalid,
				"endpoint.remote.tokens: there are no credentials for the API server that knows tokens")
		}
		o.Review = kube.NewReviewer(*a.documents).Review
	}
	gate, problem := remote.New(o)
	if problem != nil {
		return nil, problem
	}
	if err := gate.Follow(a.ctx); err != nil {
		return nil, fmt.Errorf("cannot follow the files of the remote endpoint: %w", err)
	}
	return NewRemoteEndpoint(gate.Handler(a.exporter.Metrics()), port(c.Listen), gate.TLS(), a.Log), nil
}
