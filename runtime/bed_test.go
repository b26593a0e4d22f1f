package runtime

import (
	"bytes"
	"flag"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	// defaultHookDir is where CRI-O and podman look for hooks if nothing is configured.
	defaultHookDir = "/usr/share/containers/oci/hooks.d"

	specFile = "/var/run/cdi/qemu.org-edu.json"
	jsonFile = "/usr/share/containers/oci/hooks.d/50-acceld.json"
)

// bed is a host in a directory with a Runtime that works on it.
type bed struct {
	*testing.T
	root string
	r    *Runtime
	log  *bytes.Buffer
	def  *accel.Definition
	accs []accel.Accelerator
	want accel.Want
}

func newBed(t *testing.T, root string) *bed {
	t.Helper()
	b := &bed{T: t, root: root, log: &bytes.Buffer{}, want: accel.Want{CDI: true, Hook: true}}
	program := filepath.Join(t.TempDir(), "acceld-hook")
	if err := os.WriteFile(program, []byte("the hook"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.def = &accel.Definition{
		Kind: "qemu-edu", Resource: "qemu.org/edu",
		Nodes: []accel.NodeSource{{Glob: "accel/*", Permissions: "wr"}, {Glob: "misc/*", Permissions: "m"}},
		Container: accel.Edits{
			Env:    []string{"EDU=1"},
			Mounts: []accel.Mount{{HostPath: "/usr/lib/edu", ContainerPath: "/usr/lib/edu"}},
			Nodes:  []string{"/dev/eductl"},
		},
	}
	b.accs = []accel.Accelerator{
		{
			ID: "0000:01:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/edu0", Major: 240, Minor: 0}},
			Health: accel.Health{State: accel.Healthy},
		},
		{
			ID: "0000:02:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/edu1", Major: 240, Minor: 1}},
			Health: accel.Health{State: accel.Unhealthy},
		},
		{
			ID: "0000:03:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/edu2", Major: 240, Minor: 2}},
			Health: accel.Health{State: accel.Gone},
		},
		{ID: "0000:04:00.0", Health: accel.Health{State: accel.Healthy}},
	}
	b.restart(program, "cri-o")
	return b
}

// restart creates the Runtime again, as a restarted agent does.
func (b *bed) restart(program, engine string) {
	b.Helper()
	h, err := host.New(b.root)
	if err != nil {
		b.Fatal(err)
	}
	b.r = New(h, Options{
		Log: slog.New(slog.NewTextHandler(b.log, nil)), HookProgram: program,
		Engine: accel.ContainerEngine{Name: engine},
	})
}

func (b *bed) path(name string) string { return filepath.Join(b.root, name) }

func (b *bed) write(name, text string) {
	b.Helper()
	if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(b.path(name), []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) apply() accel.RuntimeHave {
	b.Helper()
	have, p := b.r.Apply(b.def, b.accs, b.want)
	if p != nil {
		b.Fatalf("Apply: %v", p)
	}
	if !have.Applied {
		b.Fatalf("Apply succeeded and Applied is false: %+v", have)
	}
	return have
}

func (b *bed) applied() bool {
	b.Helper()
	have, p := b.r.Check(b.def, b.accs, b.want)
	if p != nil {
		b.Fatalf("Check: %v", p)
	}
	return have.Applied
}

// files returns the files below the root, by path, with mode, time and content or link text.
func (b *bed) files() map[string]string {
	b.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(b.root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		text, _ := os.Readlink(p)
		if text == "" {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text = string(data)
		}
		all[strings.TrimPrefix(p, b.root)] = st.Mode().String() + " " + st.ModTime().Format(time.RFC3339Nano) + " " +
			text
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return all
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
