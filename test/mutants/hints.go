package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// hintsFile says for each mutant which top-level test killed it the last time. It is part of the tree, so that a
// reader sees which test guards a place, and a fresh machine begins with that test.
const hintsFile = "test/mutants/killers.json"

// hints are the content of [hintsFile]. The test that is named is run before all others of its package. A wrong hint
// costs time and changes no outcome.
type hints struct {
	name string
	mu   sync.Mutex
	by   map[string]string // the test, by the mutant's id
}

func readHints(root string) (*hints, error) {
	h := &hints{by: map[string]string{}, name: filepath.Join(root, hintsFile)}
	text, err := os.ReadFile(h.name)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &h.by)
	}
	return h, err
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

// write saves the hints for the mutants of the list, sorted, one to a line.
func (h *hints) write(list []mutant) error {
	kept := map[string]string{}
	for _, m := range list {
		if test := h.by[m.ID]; test != "" {
			kept[m.ID] = test
		}
	}
	text, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(h.name, append(text, '\n'), 0o644)
}
