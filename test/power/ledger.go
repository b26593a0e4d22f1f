package power

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/cmd/acceld/cli"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/test/machines"
	"github.com/acceld/acceld/test/tree"
	"github.com/acceld/acceld/vendors"
)

// ledgers is the area of what acceld changes on the host and takes back: the host is a directory of the disk.
type ledgers struct{}

// files is what the area promises: the host's files, by path, as digests. Those that are there passing by are left out.
type files struct {
	Files map[string]string
	Tree  string `json:",omitempty"` // the host at the start
}

// boot gives the host at root its next boot.
func boot(root string, number int) error {
	if err := volatile(root); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, "dev/edu0"), nil, 0o644),
		os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"),
			fmt.Appendf(nil, "%08d-0000-4000-8000-000000000001\n", number), 0o444),
	)
}

// Prepare makes a host with files that acceld will change, and with their neighbours.
func (ledgers) Prepare(dir string) error {
	root := filepath.Join(dir, "host")
	if err := machines.Write(root, "qemu-edu"); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"etc/crio/crio.conf.d/10-own.conf": "[crio]\n", "etc/containers/containers.conf": "[engine]\n",
		"etc/cdi/stale.json":                             "{}",
		"etc/containerd/config.toml":                     "# ours\nversion = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"x\"\n",
		"usr/share/containers/oci/hooks.d/10-other.json": "{}", "usr/local/lib/x": "", "var/lib/x": "",
		"proc/sys/kernel/random/boot_id": "",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		_ = os.Remove(file) // some of the machine's may only be read
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	_ = os.Symlink("../run", filepath.Join(root, "var/run")) // the machine may have it
	for _, dir := range []string{"run", "dev"} {
		if err := errors.Join(os.RemoveAll(filepath.Join(root, dir)), os.Mkdir(filepath.Join(root, dir),
			0o755)); err != nil {
			return err
		}
	}
	return os.Chmod(filepath.Join(root, "etc/containers/containers.conf"), 0o640)
}

// Work changes the host as the agent and the commands do, takes it all back, and begins again.
func (ledgers) Work(dir string, mark Mark) error {
	root := filepath.Join(dir, "host")
	if err := boot(root, 0); err != nil {
		return err
	}
	text, err := look(root)
	if err != nil {
		return err
	}
	now, err := digests(root)
	if err != nil {
		return err
	}
	if err := mark("start", files{now, text}); err != nil {
		return err
	}
	done := func(step string) error {
		now, err := digests(root)
		if err != nil {
			return err
		}
		return mark(step, files{Files: now})
	}
	for range 2 {
		if err := change(root, done); err != nil {
			return err
		}
		if said, code := acceld(root, "runtime", "apply", "--engine=containerd", "--edit=full",
			"--config-only"); code != 0 {
			return errors.New(said)
		}
		if err := done("runtime apply"); err != nil {
			return err
		}
		if said, code := acceld(root, "purge"); code != 0 {
			return errors.New(said)
		}
		if err := done("purge"); err != nil {
			return err
		}
	}
	return nil
}

// acceld runs the command on the host at root.
func acceld(root string, args ...string) (said string, code int) {
	var out bytes.Buffer
	code = cli.Main(append([]string{"--config=/dev/null", "--host-root=" + root}, args...), nil, &out, &out)
	return out.String(), code
}

// change does what the agent does in its life, and tells of each step.
func change(root string, done func(step string) error) error {
	h, err := host.New(root)
	if err != nil {
		return err
	}
	defs, problem := vendors.Definitions()
	if problem != nil {
		return problem
	}
	l, err := ledger.Open(h, "/var/lib/acceld", nil)
	if err != nil {
		return err
	}
	def := defs["qemu-edu"]
	accs := []accel.Accelerator{{
		ID: "0000:00:04.0", Nodes: []accel.DeviceNode{{Path: "/dev/edu0", Major: 240}},
		Health: accel.Health{State: accel.Healthy},
	}}
	r := runtime.New(h, runtime.Options{
		Ledger: l, HookProgram: "/proc/self/cmdline",
		Engine: accel.ContainerEngine{Name: "cri-o"},
	})
	want := accel.Want{CDI: true, Hook: true, Kinds: defs}
	noProblem := func(p *accel.Problem) error {
		if p != nil {
			return p
		}
		return nil
	}
	for i := range 2 {
		for _, s := range []struct {
			name string
			do   func() error
		}{
			{"apply", func() error { _, p := r.Apply(def, accs, want); return noProblem(p) }},
			{"readiness", func() error {
				return noProblem(r.PublishReadiness(nil, map[string][]accel.Accelerator{def.Kind: accs}))
			}},
			{"a new file", func() error {
				return l.WriteFile("/etc/crio/crio.conf.d/60-acceld.conf", fmt.Appendf(nil, "# %d\n", i), 0o644)
			}},
			{"a file replaced", func() error {
				return l.WriteFile("/etc/containers/containers.conf", fmt.Appendf(nil, "[engine] # %d\n", i), 0o644)
			}},
			{"a file in new directories", func() error {
				return l.WriteFile("/etc/acceld.d/deep/down/file", bytes.Repeat(fmt.Appendf(nil, "# %d\n", i), 3000),
					0o600)
			}},
			{"a file removed", func() error { return l.Remove("/etc/cdi/stale.json") }},
			{"a link", func() error { return l.Symlink(fmt.Sprintf("to-%d", i), "/usr/local/lib/acceld-link") }},
			{"a note", func() error { return l.Note("module", "edu", "{}") }},
			{"remove", func() error { return noProblem(r.Remove(def)) }},
		} {
			if err := s.do(); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if err := done(s.name); err != nil {
				return err
			}
		}
	}
	_, problem = r.Apply(def, accs, want)
	if problem != nil {
		return problem
	}
	return done("apply")
}

// look takes the tree, but for what a boot empties or the kernel makes, and the time of the directory that acceld's own
// is in.
func look(root string) (string, error) {
	text, err := tree.Of(root, tree.Options{Mtime: true, DirTime: true, Skip: []string{
		"/run", "/dev", "/proc",
		"/sys",
	}})
	var b strings.Builder
	for l := range strings.Lines(text) {
		if name, _, _ := strings.Cut(l, " "); name != "/var/lib" {
			b.WriteString(l)
		}
	}
	return b.String(), err
}

// digests are the files of the host that are in force.
func digests(root string) (map[string]string, error) {
	out := map[string]string{}
	for _, top := range []string{"etc", "usr"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || ledger.Passing(name) {
				return err
			}
			var text string
			if d.Type() == fs.ModeSymlink {
				text, err = os.Readlink(name)
			} else {
				var b []byte
				b, err = os.ReadFile(name)
				text = describe(b)
			}
			out[strings.TrimPrefix(name, root)] = text
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Check: each file in force is as one of the two steps left it. Of every second cut the agent then starts and does its
// work again. In the end a purge makes the host what it was.
func (ledgers) Check(dir string, c Cut) (wrong Wrong, err error) {
	root := filepath.Join(dir, "host")
	if err := boot(root, c.Number+1); err != nil {
		return wrong, err
	}
	var start, before, after files
	if err := errors.Join(json.Unmarshal(c.Start, &start), json.Unmarshal(c.Before, &before),
		json.Unmarshal(c.After, &after)); err != nil {
		return wrong, err
	}
	now, err := digests(root)
	if err != nil {
		return wrong, err
	}
	for _, name := range names(before.Files, after.Files, now) {
		if is := now[name]; is != before.Files[name] && is != after.Files[name] {
			wrong.file(name, is, before.Files[name], after.Files[name])
		}
	}
	if c.Number%2 == 1 {
		if err := change(root, func(string) error { return nil }); err != nil {
			wrong.broken("the agent started again: %v", err)
		}
	}
	said, code := acceld(root, "purge")
	if code != 0 {
		wrong.broken("the purge ended with %d: %s", code, said)
	}
	then, err := look(root)
	if diff := tree.Diff(start.Tree, then); diff != "" {
		wrong.broken("after the purge the host is not what it was:\n%s", diff)
	}
	return wrong, err
}
