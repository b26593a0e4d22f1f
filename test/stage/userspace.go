package stage

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/test/edu/user"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
)

// Root pushes an image that is laid out like a root: the driver's module in one version, for the guest's kernel, and
// its user space in another or the same. It returns the image's name for a guest.
func (s *Stage) Root(ctx context.Context, g *bed.Guest, name, module, library string) (string, error) {
	ko, err := s.Module(ctx, g, module)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(s.bin, "root-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := user.Root(ctx, dir, library, s.File("test/edu/module/edu.h")); err != nil {
		return "", err
	}
	files, err := imageFiles(dir)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(ko)
	if err != nil {
		return "", err
	}
	release, err := g.Run(ctx, "uname", "-r")
	if err := Must(release, err); err != nil {
		return "", err
	}
	files["/lib/modules/"+strings.TrimSpace(release.Stdout)+"/extra/edu.ko"] = image.File{Mode: 0o644, Content: content}
	return g.PushImage(ctx, name, files)
}

// App pushes the image of edu-app, which has a C library and no libedu, and returns its name for a guest.
func (s *Stage) App(ctx context.Context, n *bed.Node) (string, error) {
	dir, err := os.MkdirTemp(s.bin, "app-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := user.App(ctx, dir, s.File("test/edu/module/edu.h")); err != nil {
		return "", err
	}
	files, err := imageFiles(dir)
	if err != nil {
		return "", err
	}
	return n.PushImage(ctx, "edu-app:test", files, "/usr/bin/edu-app")
}

func imageFiles(dir string) (map[string]image.File, error) {
	files := map[string]image.File{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		files[strings.TrimPrefix(name, dir)] = image.File{Mode: 0o755, Content: content}
		return err
	})
	return files, err
}

// Whole writes a definition of the stand-in accelerator into the guest whose whole driver comes from one image, of the
// version.
func (s *Stage) Whole(ctx context.Context, g *bed.Guest, image, version string) error {
	return s.WholeFrom(ctx, g, fmt.Sprintf("[{type: oci, image: %q, plainHTTP: true}]", image), "{}", version)
}

// WholeFrom is [Stage.Whole] with other sources and another user space, as they are in a definition.
func (s *Stage) WholeFrom(ctx context.Context, g *bed.Guest, sources, userSpace, version string) error {
	text, err := os.ReadFile(s.File("vendors/qemu/edu.yaml"))
	if err != nil {
		return err
	}
	def := string(text)
	for _, change := range []struct{ from, to string }{
		{
			"  sources:\n    - type: build\n      path: /usr/src/edu-{{.DriverVersion}}\n",
			"  sources: " + sources + "\n  userSpace: " + userSpace + "\n",
		},
		{"  version: \"" + Version + "\"\n", "  version: \"" + version + "\"\n"},
	} {
		if !strings.Contains(def, change.from) {
			return fmt.Errorf("cannot change the definition: it has no %q", change.from)
		}
		def = strings.Replace(def, change.from, change.to, 1)
	}
	return g.WriteFile(ctx, "/etc/acceld/definitions.d/edu.yaml", []byte(def), 0o644)
}

// Attended writes the definition of the whole driver in a version, with a daemon that keeps the devices open and has
// these arguments, into the guest. The image is that of [Stage.Root].
func (s *Stage) Attended(ctx context.Context, g *bed.Guest, image, version, args string) error {
	return s.WholeFrom(ctx, g, `[{type: oci, image: "`+image+`", plainHTTP: true}]`, "{}"+Companion(args), version)
}

// Companion is what follows the user space in a definition with a daemon that keeps the devices open and has these
// arguments.
func Companion(args string) string {
	return `
  companions:
    - name: stay
      program: edu-stayd
      args: [` + args + `]
      directory: edu-stay
      ready: /run/edu-stay/ready`
}
