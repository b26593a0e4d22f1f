package runtime

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/runtime/engine"
)

// sample is one configuration of the corpus: a tree of files and what is expected of it.
type sample struct {
	name string
	// engine, version, edit and want ("change", "none" or a reason); untouched is a file that must not change.
	engine, version, edit, want, untouched string
	tree                                   func(t *testing.T) string
}

// corpus reads the samples. The comment of an archive is "key: value" lines: crlf, bom, chomp and pad change a file in
// ways that an archive cannot hold, link makes a file the target of a link, mode sets permissions.
func corpus(t testing.TB) []sample {
	t.Helper()
	files, err := filepath.Glob("testdata/corpus/*.txtar")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	var all []sample
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := sample{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), edit: "full"}
		var shape [][2]string
		for _, line := range strings.Split(string(a.Comment), "\n") {
			key, value, _ := strings.Cut(line, ": ")
			switch key {
			case "engine":
				s.engine = value
			case "version":
				s.version = value
			case "edit":
				s.edit = value
			case "want":
				s.want = value
			case "untouched":
				s.untouched = value
			default:
				if key != "" && key[0] != '#' {
					shape = append(shape, [2]string{key, value})
				}
			}
		}
		s.tree = func(t *testing.T) string { return plant(t, a, shape) }
		all = append(all, s)
	}
	return all
}

// plant writes the files of an archive into a new directory.
func plant(t *testing.T, a *txtar.Archive, shape [][2]string) string {
	t.Helper()
	root := t.TempDir()
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range a.Files {
		p := filepath.Join(root, f.Name)
		data := f.Data
		for _, s := range shape {
			name, n, _ := strings.Cut(s[1], " ")
			if name != f.Name {
				continue
			}
			switch s[0] {
			case "crlf":
				data = bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
			case "bom":
				data = append([]byte("\xef\xbb\xbf"), data...)
			case "chomp":
				data = bytes.TrimSuffix(data, []byte("\n"))
			case "pad":
				size, err := strconv.Atoi(n)
				try(err)
				data = append(bytes.Repeat([]byte("# nothing to see here\n"), size/22), data...)
			}
		}
		try(os.MkdirAll(filepath.Dir(p), 0o755))
		try(os.WriteFile(p, data, 0o644))
	}
	for _, s := range shape {
		a, b, _ := strings.Cut(s[1], " ")
		switch s[0] {
		case "link":
			_, text, _ := strings.Cut(b, "-> ")
			target := filepath.Join(root, filepath.Dir(a), text)
			try(os.MkdirAll(filepath.Dir(target), 0o755))
			try(os.Rename(filepath.Join(root, a), target))
			try(os.Symlink(text, filepath.Join(root, a)))
		case "mode":
			mode, err := strconv.ParseUint(a, 8, 32)
			try(err)
			try(os.Chmod(filepath.Join(root, b), fs.FileMode(mode)))
			t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, b), 0o755) })
		}
	}
	return root
}

// picture is everything about a tree that a purge must restore: for files and directories the mode, owner, time and
// content, without acceld's own records.
func picture(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(p, root)
		if name == "/var/lib/acceld" || name == "/run/acceld" {
			return fs.SkipDir
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		text, _ := os.Readlink(p)
		if st.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text = string(b)
		}
		own := st.Sys().(*syscall.Stat_t)
		at := st.ModTime().String()
		if name == "" || name == "/var" || name == "/var/lib" || name == "/run" {
			at = "" // the books are below it until they are discarded
		}
		all[name] = fmt.Sprint(st.Mode(), own.Uid, own.Gid, at, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/var", "/var/lib", "/run"} { // those that had to be created for the records
		if entries, err := os.ReadDir(filepath.Join(root, dir)); err == nil {
			left := 0
			for _, e := range entries {
				if name := e.Name(); name != "acceld" && name != "lib" {
					left++
				}
			}
			if left == 0 {
				delete(all, dir)
			}
		}
	}
	return all
}

// on opens the tree with an agent of its own, like a restarted one.
func (s sample) on(t *testing.T, root string) (*Runtime, *ledger.Ledger) {
	t.Helper()
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	e := accel.ContainerEngine{Name: s.engine, Version: s.version}
	if slices.Contains([]string{"k3s", "rke2", "k0s", "microk8s"}, s.engine) {
		e.Name, e.Layout = "containerd", s.engine
	}
	l, err := ledger.Open(h, "/var/lib/acceld", nil)
	if err != nil {
		t.Fatal(err)
	}
	return New(h, Options{Engine: e, Edit: engine.Edit(s.edit), Ledger: l}), l
}

func TestCorpus(t *testing.T) {
	for _, s := range corpus(t) {
		t.Run(s.name, func(t *testing.T) {
			root := s.tree(t)
			before := picture(t, root)
			kept, _ := os.ReadFile(filepath.Join(root, s.untouched))
			r, l := s.on(t, root)
			checked, _ := r.CheckConfig()
			if diff := cmp.Diff(before, picture(t, root)); diff != "" {
				t.Fatalf("check changed the tree:\n%s", diff)
			}
			rep, p := r.ApplyConfig(t.Context())
			switch got := outcome(rep, p); {
			case got != s.want:
				t.Fatalf("%s (%v), want %s\n%s", got, p, s.want, rep.Diff)
			case p != nil:
				if diff := cmp.Diff(before, picture(t, root)); diff != "" {
					t.Errorf("the tree changed although %v:\n%s", p, diff)
				}
				return
			case !asOffered(rep):
				t.Error("devices do not reach containers")
			}
			if diff := cmp.Diff(checked.Diff, rep.Diff); diff != "" {
				t.Errorf("check and apply differ:\n%s", diff)
			}
			if now, _ := os.ReadFile(filepath.Join(root, s.untouched)); s.untouched != "" && !bytes.Equal(kept, now) {
				t.Errorf("%s changed", s.untouched)
			}
			s.minimal(t, rep)
			s.byProgram(t, r)
			after := picture(t, root)
			r, _ = s.on(t, root)
			if rep, p := r.ApplyConfig(t.Context()); p != nil || len(rep.Change.Files) > 0 {
				t.Errorf("a second apply: %v, %s", p, rep.Diff)
			}
			if diff := cmp.Diff(after, picture(t, root)); diff != "" {
				t.Errorf("a second apply changed the tree:\n%s", diff)
			}
			if _, err := l.Undo(ledger.UndoOptions{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, picture(t, root)); diff != "" {
				t.Errorf("after the purge (-before +now):\n%s", diff)
			}
		})
	}
}

// asOffered reports whether devices reach containers, if the runtime is of a version that reads specs: most samples
// have no version.
func asOffered(rep Report) bool { return rep.Offers || rep.Config.CDI && rep.Config.Unknown != "" }

func outcome(rep Report, p *accel.Problem) string {
	switch {
	case p != nil:
		return string(p.Reason)
	case len(rep.Change.Files) > 0:
		return "change"
	}
	return "none"
}

// minimal checks that a file of somebody else keeps every byte: the previous content is there, in one or two pieces
// per key.
func (s sample) minimal(t *testing.T, rep Report) {
	t.Helper()
	for _, f := range rep.Change.Files {
		if f.New || !f.Foreign {
			continue
		}
		removed := 0
		for _, line := range strings.Split(engine.Change{Files: []engine.File{f}}.Diff(), "\n") {
			if strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "---") {
				removed++
			}
		}
		if removed > 4 || len(f.After) < len(f.Before)-1 || len(f.After) > len(f.Before)+200 {
			t.Errorf("%s: %d lines replaced, %d bytes of %d", f.Path, removed, len(f.After), len(f.Before))
		}
	}
}

// byProgram lets the real runtimes of the test bed, and a containerd 1 that the environment names, read the tree.
func (s sample) byProgram(t *testing.T, r *Runtime) {
	t.Helper()
	staged, err := engine.Stage(r.host, r.engine)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range staged {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(strings.ReplaceAll(string(data), engine.StageDir, dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(program string, want string, args ...string) {
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, no %q in %s", program, err, want, out)
		}
	}
	toml := filepath.Join(dir, "0.toml")
	if os.Getenv("ACCELD_TESTBED") != "1" {
		return
	}
	// the test bed has no containerd 1
	one, two, crio := os.Getenv("ACCELD_CONTAINERD1"), bedProgram(t, "containerd"), bedProgram(t, "crio")
	if major(two) != "2" {
		t.Fatalf("the test bed's containerd %q is not a 2", two)
	}
	format := r.mustFormat(t)
	if _, ok := staged["0.toml"]; ok && one != "" && format < 3 && !strings.HasPrefix(s.version, "2") {
		run(one, "enable_cdi = true", "--config", toml, "config", "dump")
	}
	if _, ok := staged["0.toml"]; ok && two != "" && !strings.Contains(s.name, "bom") {
		run(two, "/cdi'", "--config", toml, "config", "dump")
	}
	if _, ok := staged["crio.conf"]; ok && crio != "" {
		run(crio, "run/cdi", "--config", filepath.Join(dir, "crio.conf"), "--config-dir",
			filepath.Join(dir, "crio.conf.d"), "config")
	}
}

// mustFormat returns the format version of containerd's top-level file.
func (r *Runtime) mustFormat(t *testing.T) int {
	t.Helper()
	c, p := engine.Read(r.host, r.engine)
	if p != nil {
		t.Fatal(p)
	}
	b, _ := r.host.ReadFile(c.Top)
	for _, v := range []int{3, 4} {
		if bytes.Contains(b, []byte(fmt.Sprint("version = ", v))) {
			return v
		}
	}
	return 2
}

// A crash after any file leaves a configuration with which the runtime starts. The next apply continues, and a purge
// undoes all of it.
func TestCorpusCrash(t *testing.T) {
	for _, s := range corpus(t) {
		if s.want != "change" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			for _, then := range []string{"apply", "purge"} {
				root := s.tree(t)
				before := picture(t, root)
				r, _ := s.on(t, root)
				rep, p := r.CheckConfig()
				if p != nil {
					t.Fatal(p)
				}
				for n := range rep.Change.Files {
					if p := r.config.change(r.engine, engine.Change{Files: rep.Change.Files[n : n+1]}); p != nil {
						t.Fatal(p)
					}
					if _, p := engine.Read(r.host, r.engine); p != nil {
						t.Fatalf("after file %d the configuration is broken: %v", n+1, p)
					}
					if then == "apply" {
						break
					}
				}
				r, l := s.on(t, root)
				if then == "apply" {
					if rep, p := r.ApplyConfig(t.Context()); p != nil || !asOffered(rep) {
						t.Fatalf("the next apply: %v", p)
					}
				}
				if _, err := l.Undo(ledger.UndoOptions{}); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, picture(t, root)); diff != "" {
					t.Errorf("after a crash, %s and purge (-before +now):\n%s", then, diff)
				}
			}
		})
	}
}
