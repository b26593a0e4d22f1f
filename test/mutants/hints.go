package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// hints remember outside of the tree which test noticed a mutant the last time: it is asked first the next time, before
// all the others of its package. Without them the outcome is the same, later.
type hints struct {
	name string
	mu   sync.Mutex
	by   map[string]string // of each mutant's id the top-level test
}

func readHints() *hints {
	h := &hints{by: map[string]string{}}
	dir := os.Getenv("ACCELD_CACHE") // where make keeps what is not part of the tree
	if dir == "" {
		return h
	}
	h.name = filepath.Join(dir, "mutants.json")
	if text, err := os.ReadFile(h.name); err == nil {
		_ = json.Unmarshal(text, &h.by) // what cannot be read gives no hints
	}
	return h
}

func (h *hints) get(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[id]
}

func (h *hints) set(id, test string) {
	test, _, _ = strings.Cut(test, "/")
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.HasPrefix(test, "Test") {
		h.by[id] = test
	}
}

func (h *hints) write() {
	if h.name == "" {
		return
	}
	text, err := json.Marshal(h.by)
	if err == nil && os.MkdirAll(filepath.Dir(h.name), 0o755) == nil {
		_ = os.WriteFile(h.name, text, 0o644) // see above
	}
}
