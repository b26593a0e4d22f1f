package probe

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/acceld/acceld/accel"
)

// The last snapshot of a program is kept below /run for the next agent. Otherwise nobody would know how devices are
// divided until the next agent's own program has reported, and none could be given out. A reboot empties it.

// file returns the path of the stored snapshot; empty if none is kept.
func (p *program) file() string {
	if p.o.Dir == "" {
		return ""
	}
	return path.Join(p.o.Dir, p.kind+".json")
}

// remember loads the stored snapshot. It is valid as long as if it had been reported now.
func (p *program) remember() {
	if p.file() == "" {
		return
	}
	data, err := p.o.Host.ReadFile(p.file())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var s accel.ProbeSnapshot
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		p.o.Log.Warn("what a probe program has said before cannot be read", "path", p.file(), "error", err)
		return
	}
	p.book.devices, p.book.labels, p.book.heard, p.book.limit = devices(&s), labels(s.Labels), time.Now(),
		silence(p.def)
}

// keep stores a snapshot; nil removes the stored one.
func (p *program) keep(s *accel.ProbeSnapshot) {
	if p.file() == "" {
		return
	}
	var err error
	if s == nil {
		err = p.o.Host.Remove(p.file())
	} else {
		var data []byte
		if data, err = json.Marshal(s); err == nil {
			err = p.o.Host.MkdirAll(p.o.Dir, 0o755)
		}
		if err == nil {
			err = p.o.Host.WriteFile(p.file(), data, 0o600)
		}
	}
	if err != nil {
		p.o.Log.Warn("what a probe program has said cannot be kept", "path", p.file(), "error", err)
	}
}
