package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxSize is the budget of the image as a registry stores it, in bytes.
const maxSize = 40_000_000

// programs returns the files of the image, one layer each. What changes least comes first, so that an upgrade of the
// agent alone moves one layer.
func programs(o Options) []string {
	if o.Controller {
		return []string{"acceld-controller"}
	}
	return []string{library, prover, "acceld-hook", "acceld"}
}

// programsIn returns the programs that an image of bin holds: all of them, except for an optional one that bin lacks.
func programsIn(bin string, o Options) []string {
	return slices.DeleteFunc(programs(o), func(name string) bool {
		_, err := os.Stat(filepath.Join(bin, name))
		return name == library && errors.Is(err, fs.ErrNotExist)
	})
}

// library is the program that loads a library of the host. Building it needs a C compiler, so an image may lack it.
const library = "acceld-nvml"

// prover is another one, whose building needs no C compiler.
const prover = "acceld-prove"

// Options describe an image.
type Options struct {
	// Name is the reference that the layout's index gives it.
	Name     string
	Version  string
	Revision string
	// Created is the time of everything in the image.
	Created time.Time
	// Controller selects the controller's image instead of the agent's.
	Controller bool
	// Compression is the gzip level of the layers, 1 to 9; 9 if it is zero.
	Compression int
}

// New creates the image from the programs in the directory bin. It fails if a program is missing, is not static, or
// is for a different processor than the others, or if the image exceeds its budget.
func New(bin string, o Options) (v1.Image, error) {
	arch := ""
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	for _, program := range programsIn(bin, o) {
		data, err := os.ReadFile(filepath.Join(bin, program))
		if err != nil {
			return nil, fmt.Errorf("cannot read program: %w", err)
		}
		is, err := architecture(data, program == library || program == prover)
		if err != nil {
			return nil, fmt.Errorf("cannot use program %q: %w", program, err)
		}
		if arch != "" && is != arch {
			return nil, fmt.Errorf("cannot use program %q: it is for %s, the others are for %s", program, is, arch)
		}
		arch = is
		layer, err := layer(program, data, o)
		if err != nil {
			return nil, fmt.Errorf("cannot make the layer of %q: %w", program, err)
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: o.Created}, CreatedBy: "/" + program},
		})
		if err != nil {
			return nil, fmt.Errorf("cannot add the layer of %q: %w", program, err)
		}
	}
	img, err := configure(img, arch, o)
	if err != nil {
		return nil, fmt.Errorf("cannot configure the image: %w", err)
	}
	size, err := Size(img)
	if err != nil {
		return nil, err
	}
	if size > maxSize {
		return nil, fmt.Errorf("the image has %d bytes, its budget is %d", size, maxSize)
	}
	return img, nil
}

func configure(img v1.Image, arch string, o Options) (v1.Image, error) {
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", arch, v1.Time{Time: o.Created}
	file.Config = v1.Config{
		Entrypoint: []string{"/acceld", "run", "--host-root", "/host"},
		WorkingDir: "/",
		Env: []string{
			// The host's trusted certificates, as Debian's and Red Hat's families store them.
			"SSL_CERT_DIR=/host/etc/ssl/certs:/host/etc/pki/ca-trust/extracted/pem",
		},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "acceld",
			"org.opencontainers.image.description": "from a bare kernel to accelerators that containers can use",
			"org.opencontainers.image.source":      "https://github.com/acceld/acceld",
			"org.opencontainers.image.version":     o.Version,
		},
	}
	if o.Controller {
		file.Config.Entrypoint, file.Config.Env = []string{"/acceld-controller"}, nil
		file.Config.Labels["org.opencontainers.image.title"] = "acceld-controller"
		file.Config.Labels["org.opencontainers.image.description"] = "keeps book of accelerator cards for the Kubernetes scheduler"
	}
	if o.Revision != "" {
		file.Config.Labels["org.opencontainers.image.revision"] = o.Revision
	}
	return mutate.ConfigFile(img, file)
}

// layer returns a layer with one program, owned by root.
func layer(name string, data []byte, o Options) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := add(w, name, 0o755, data, o.Created); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(cmp.Or(o.Compression, gzip.BestCompression)),
		tarball.WithCompressedCaching,
	)
}

// architecture returns the GOARCH of a program for Linux. The program must be static, because the image has no C
// library, unless it runs among the host's files.
func architecture(program []byte, amongHosts bool) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it is in memory
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && !amongHosts {
			return "", fmt.Errorf("it is not static: build it with CGO_ENABLED=0")
		}
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("machine %s is not supported", f.Machine)
}

// Size returns what a registry stores for the image, in bytes.
func Size(img v1.Image) (int64, error) {
	m, err := img.Manifest()
	if err != nil {
		return 0, fmt.Errorf("cannot read the manifest: %w", err)
	}
	size, err := img.Size()
	if err != nil {
		return 0, fmt.Errorf("cannot read the manifest: %w", err)
	}
	size += m.Config.Size
	for _, l := range m.Layers {
		size += l.Size
	}
	return size, nil
}
