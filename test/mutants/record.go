package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// recordFile has the last result of each mutant that was run with -write. It is part of the tree, so that a reader sees
// which test guards a place, and a run on a fresh machine begins with that test.
const recordFile = "test/mutants/record.json"

// record is the content of [recordFile], by the mutant's id.
type record map[string]recorded

type recorded struct {
	Outcome outcome `json:"outcome"`
	By      string  `json:"by,omitempty"` // the test that noticed it
}

func readRecord(root string) (record, error) {
	text, err := os.ReadFile(filepath.Join(root, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := record{}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", recordFile, err)
	}
	return r, nil
}

// first returns the top-level test to run before all others of its package; empty for none. A wrong one costs time and
// changes no outcome.
func (r record) first(id string) string {
	test, _, _ := strings.Cut(r[id].By, "/")
	if !strings.HasPrefix(test, "Test") {
		return ""
	}
	return test
}

// with returns the record for the mutants of the list, with the results of a run.
func (r record) with(list []mutant, results []result) record {
	out := record{}
	for _, m := range list {
		if old, ok := r[m.ID]; ok {
			out[m.ID] = old
		}
	}
	for _, x := range results {
		out[x.ID] = recorded{Outcome: x.outcome}
		if x.outcome == killed || x.outcome == late {
			out[x.ID] = recorded{x.outcome, x.by}
		}
	}
	return out
}

// results returns the recorded results of the list.
func (r record) results(list []mutant) []result {
	var out []result
	for _, m := range list {
		if x, ok := r[m.ID]; ok {
			out = append(out, result{mutant: m, outcome: x.Outcome, by: x.By})
		}
	}
	return out
}

// write saves the record, sorted, one mutant to a line.
func (r record) write(root string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, recordFile), append(text, '\n'), 0o644)
}
