package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
)

// downFile records, until the next boot, a change after which the runtime did not come back.
const downFile = "/run/acceld/runtime-down.json"

// down is the content of downFile.
type down struct {
	Change  string         `json:"change"` // a digest
	Problem *accel.Problem `json:"problem"`
}

func digestOf(c engine.Change) string {
	sum := sha256.Sum256([]byte(c.Diff()))
	return hex.EncodeToString(sum[:])
}

// giveUp records that the change must not be tried again. If that fails, it is tried once more.
func (r *restarter) giveUp(e accel.ContainerEngine, c engine.Change, p *accel.Problem) {
	if len(c.Files) == 0 { // from an earlier call: plan it again, now that it is reverted
		if c, _ = engine.Plan(r.host, e, specDir, r.edit); len(c.Files) == 0 {
			return
		}
	}
	if b, err := json.Marshal(down{digestOf(c), p}); err == nil {
		_ = r.write(downFile, append(b, '\n'), 0o600)
	}
}

// gaveUp returns the problem of a change that was tried and reverted.
func (r *restarter) gaveUp(c engine.Change) *accel.Problem {
	var last down
	b, _ := r.host.ReadFile(downFile) // usually there is no such file
	if json.Unmarshal(b, &last) == nil && last.Change == digestOf(c) && !r.retry {
		return last.Problem
	}
	return nil
}
