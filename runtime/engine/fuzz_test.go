package engine

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/acceld/acceld/accel"
)

// memory is a file system in memory.
type memory map[string][]byte

func (m memory) ReadFile(name string) ([]byte, error) {
	if b, ok := m[path.Clean(name)]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (m memory) ReadDir(name string) ([]fs.DirEntry, error) {
	var files []File
	for n, b := range m {
		files = append(files, File{Path: n, After: b})
	}
	entries, err := With(nothing{}, Change{Files: files}).ReadDir(name)
	if len(entries) == 0 {
		return nil, fs.ErrNotExist
	}
	return entries, err
}

type nothing struct{}

func (nothing) ReadFile(string) ([]byte, error)       { return nil, fs.ErrNotExist }
func (nothing) ReadDir(string) ([]fs.DirEntry, error) { return nil, fs.ErrNotExist }

const specs = "/var/run/cdi"

// mutate changes a text as a person might: comments, empty lines, white space, order, line ends, a truncated end.
// The result need not be valid.
func mutate(data []byte, r *rand.Rand, json bool) []byte {
	all := strings.SplitAfter(string(data), "\n")
	for range 1 + r.IntN(6) {
		i := r.IntN(len(all))
		switch r.IntN(9) {
		case 0:
			if !json {
				all = slices.Insert(all, i, "# enable_cdi = true [plugins.cri]\n")
			}
		case 1:
			all = slices.Insert(all, i, []string{"\n", " \t\n", "\r\n"}[r.IntN(3)])
		case 2:
			all[i] = strings.TrimLeft(all[i], " \t")
		case 3:
			all[i] = []string{"\t", "   "}[r.IntN(2)] + all[i]
		case 4:
			if text, found := strings.CutSuffix(all[i], "\n"); found && !json {
				all[i] = text + "  # a comment with \"quotes\" and ]\n"
			}
		case 5:
			j := r.IntN(len(all))
			all[i], all[j] = all[j], all[i]
		case 6:
			all[i] = strings.ReplaceAll(all[i], " = ", "=")
		case 7:
			if text, found := strings.CutSuffix(all[i], "\n"); found {
				all[i] = strings.TrimSuffix(text, "\r") + "\r\n"
			}
		case 8:
			last := len(all) - 1
			all[last] = strings.TrimSuffix(all[last], "\n")
		}
	}
	return []byte(strings.Join(all, ""))
}

// FuzzPlan checks for any text that a proposed change leaves a configuration that can be read, gives devices, says
// nothing else than before, needs no second change, and differs in few bytes.
func FuzzPlan(f *testing.F) {
	samples, err := filepath.Glob("../testdata/corpus/*.txtar")
	if err != nil || len(samples) == 0 {
		f.Fatal("no corpus")
	}
	for n := range samples {
		for seed := range uint64(8) {
			f.Add(n, seed)
		}
	}
	f.Fuzz(func(t *testing.T, n int, seed uint64) {
		if n < 0 || n >= len(samples) {
			return
		}
		a, err := txtar.ParseFile(samples[n])
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, seed))
		var e accel.ContainerEngine
		for _, line := range strings.Split(string(a.Comment), "\n") {
			if name, ok := strings.CutPrefix(line, "engine: "); ok {
				e.Name = name
				if slices.Contains([]string{"k3s", "rke2", "k0s", "microk8s"}, name) {
					e.Name, e.Layout = "containerd", name
				}
			}
		}
		e.Version = []string{"", "1.7.27", "2.1.4"}[r.IntN(3)]
		if e.Name != "containerd" {
			e.Version = ""
		}
		files := memory{}
		for _, file := range a.Files {
			files["/"+file.Name] = mutate(file.Data, r, path.Ext(file.Name) == ".json")
		}
		try(t, files, e)
	})
}

func try(t *testing.T, files memory, e accel.ContainerEngine) {
	t.Helper()
	now, p := Read(files, e)
	c, p2 := Plan(files, e, specs, EditFull)
	if p != nil {
		if p2 == nil || len(c.Files) > 0 {
			t.Fatalf("a change of files that cannot be read: %v, %s", p, c.Diff())
		}
		return
	}
	if p2 != nil || len(c.Files) == 0 {
		return
	}
	after := memory{}
	for n, b := range files {
		after[n] = b
	}
	for _, f := range c.Files {
		after[f.Path] = f.After
		if _, p := Read(after, e); p != nil {
			t.Fatalf("after %s: %v\n%s", f.Path, p, c.Diff())
		}
		if f.Foreign && !f.New && !within(f.Before, f.After) {
			t.Errorf("%s lost bytes:\n%s", f.Path, c.Diff())
		}
	}
	then, _ := Read(after, e)
	if !then.right(specs) || !reflect.DeepEqual(now.rest, then.rest) {
		t.Errorf("not what was proposed:\n%s", c.Diff())
	}
	if again, p := Plan(after, e, specs, EditFull); p != nil || len(again.Files) > 0 {
		t.Errorf("a second change: %v\n%s", p, again.Diff())
	}
}

// within reports whether all earlier lines are in after, in order, except at most two whose value was replaced or
// extended.
func within(before, after []byte) bool {
	lost := 0
	for _, line := range bytes.Split(before, []byte("\n")) {
		i := bytes.Index(after, bytes.TrimSpace(line))
		if i < 0 {
			lost++
			continue
		}
		after = after[i+len(bytes.TrimSpace(line)):]
	}
	return lost <= 2
}
