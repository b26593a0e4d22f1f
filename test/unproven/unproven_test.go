package unproven

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestList(t *testing.T) {
	root := t.TempDir()
	l := In(root)
	steps := []struct {
		do   func() error
		want string
	}{
		{func() error { return l.Note("a", "one\ntwo") }, "a: one two\n"},
		{func() error { return l.Note("b", "three") }, "a: one two\nb: three\n"},
		{func() error { return l.Note("a", "four") }, "b: three\na: four\n"},
		{func() error { return l.Proven("b") }, "a: four\n"},
		{func() error { return l.Proven("c") }, "a: four\n"},
		{func() error { return l.Proven("a") }, ""},
	}
	if err := l.Proven("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, File)); err == nil {
		t.Error("a list with nothing to say was written")
	}
	for i, s := range steps {
		if err := s.do(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, File))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.want, string(got)); diff != "" {
			t.Errorf("after step %d:\n%s", i, diff)
		}
	}
}

// Tests that run side by side lose no line of each other.
func TestTogether(t *testing.T) {
	root := t.TempDir()
	const many = 50
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			if err := In(root).Note(fmt.Sprintf("%02d", i), "why"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(filepath.Join(root, File))
	if err != nil || len(got) != many*len("00: why\n") {
		t.Errorf("%v\n%s", err, got)
	}
}
