package driver

import (
	"path"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
)

// Request is an upgrade that somebody requested by hand, <StateDir>/requests/<kind>.json. It is read with the
// configuration and overrides it, until the configuration names a different version than it did when the request was
// made.
type Request struct {
	// Version is the requested version; empty for the configured one.
	Version string        `json:"version,omitempty"`
	Holders accel.Holders `json:"holders,omitempty"`
	Adopt   bool          `json:"adopt,omitempty"`
	// Over is the version that the configuration named when the request was made.
	Over  string    `json:"over,omitempty"`
	Asked time.Time `json:"asked"`
}

// RequestDir is the directory of the requests, as a path on the host.
func RequestDir(stateDir string) string { return store.RequestDir(stateDir) }

func requestFile(stateDir, kind string) string { return path.Join(RequestDir(stateDir), kind+".json") }

// Ask writes a request for a kind. A running agent sees it at once.
func Ask(h *host.Host, stateDir, kind string, r Request) *accel.Problem {
	if err := store.WriteJSON(h, requestFile(stateDir, kind), r); err != nil {
		return accel.ProblemOf(err, "cannot note the request for %q", kind)
	}
	return nil
}

// Requested returns def with the request for its kind applied; def itself if there is no request, or none that is
// still valid.
func Requested(h *host.Host, stateDir string, def *accel.Definition) (*accel.Definition, *accel.Problem) {
	var r Request
	if ok, problem := store.ReadRequest(h, requestFile(stateDir, def.Kind), &r); !ok {
		return def, problem
	}
	if r.Over != def.Driver.Version {
		return def, nil
	}
	return r.Apply(def), nil
}

// Apply returns def with the request applied.
func (r Request) Apply(def *accel.Definition) *accel.Definition {
	d := *def
	if r.Version != "" {
		d.Driver.Version = r.Version
	}
	if r.Holders != "" {
		d.Driver.Upgrade.Holders = r.Holders
	}
	d.Driver.Upgrade.Adopt = d.Driver.Upgrade.Adopt || r.Adopt
	d.Driver.Upgrade.Asked = r.Asked
	return &d
}
