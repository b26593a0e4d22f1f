package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// RequestDir holds the upgrades that people request and the versions chosen for branches, as a path on the host. A
// running agent reads it again when it changes.
func RequestDir(stateDir string) string { return path.Join(stateDir, "requests") }

// ReadRequest reads a file of that directory into a pointer. It returns false if there is none. A process that may not
// read a request does not act on it either.
func ReadRequest(h *host.Host, name string, into any) (bool, *accel.Problem) {
	text, err := h.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return false, accel.Problemf(accel.ReasonForError(err, accel.ConfigInvalid), "cannot use the request %q: %v", name,
			err)
	}
	return true, nil
}

// WriteJSON writes v to a file of the state directory that only root may read, and creates the file's directory.
func WriteJSON(h *host.Host, name string, v any) error {
	if err := h.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return h.WriteFile(name, append(b, '\n'), 0o600)
}

// Branch is the version that a branch stands for on this host, <StateDir>/requests/<kind>.branch.json. It is read with
// the configuration, and is kept until the configuration names another branch or somebody upgrades.
type Branch struct {
	Branch  string `json:"branch"`
	Version string `json:"version"`
	// From says for people where the version was found: the name of a source, "loaded" or "store".
	From string    `json:"from"`
	Time time.Time `json:"time"`
}

func branchFile(stateDir, kind string) string {
	return path.Join(RequestDir(stateDir), kind+".branch.json")
}

// Branched returns def with the version that its branch stands for on this host, or def itself if it has no branch or
// no version has been chosen yet.
func Branched(h *host.Host, stateDir string, def *accel.Definition) (*accel.Definition, *accel.Problem) {
	if def.Driver.Branch == "" || def.Driver.Version != "" {
		return def, nil
	}
	var b Branch
	if ok, problem := ReadRequest(h, branchFile(stateDir, def.Kind), &b); !ok {
		return def, problem
	}
	if b.Branch != def.Driver.Branch || !accel.InBranch(b.Version, b.Branch) {
		return def, nil
	}
	return b.Apply(def), nil
}

// Apply returns def with the version of b.
func (b Branch) Apply(def *accel.Definition) *accel.Definition {
	out := *def
	out.Driver.Version = b.Version
	return &out
}

// Choose records what the branch of a kind stands for.
func (b Branch) Choose(h *host.Host, stateDir, kind string) *accel.Problem {
	if err := WriteJSON(h, branchFile(stateDir, kind), b); err != nil {
		return accel.ProblemOf(err, "cannot record the version of branch %q of %q", b.Branch, kind)
	}
	return nil
}
