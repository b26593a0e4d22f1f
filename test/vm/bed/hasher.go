package bed

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// hasher is a writer that only remembers a hash of what was written.
type hasher struct{ sum hash.Hash }

func (h *hasher) Write(p []byte) (int, error) {
	if h.sum == nil {
		h.sum = sha256.New()
	}
	return h.sum.Write(p)
}

func (h *hasher) String() string { return hex.EncodeToString(h.sum.Sum(nil)) }
