package driver

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/acceld/acceld/accel"
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
func RequestDir(stateDir string) string { return path.Join(stateDir, "requests") }

func requestFile(stateDir, kind string) string { return path.Join(RequestDir(stateDir), kind+".json") }

// Ask writes a request for a kind. A running agent sees it at once.
func Ask(h *host.Host, stateDir, kind string, r Request) *accel.Problem {
	if err := writeJSON(h, requestFile(stateDir, kind), r); err != nil {
		return accel.ProblemOf(err, "cannot note the request for %q", kind)
	}
	return nil
}

// Requested returns def with the request for its kind applied; def itself if there is no request, or none that is
// still valid.
func Requested(h *host.Host, stateDir string, def *accel.Definition) (*accel.Definition, *accel.Problem) {
	name := requestFile(stateDir, def.Kind)
	b, err := h.ReadFile(name)
	// A process that may not read the request does not act on it either.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return def, nil
	}
	var r Request
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return def, accel.Problemf(accel.ReasonForError(err, accel.ConfigInvalid), "cannot use the request %q: %v",
			name, err)
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
