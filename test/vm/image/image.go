// Package image makes container images from files and serves them from a registry on the host's loopback, which a guest
// reaches under the host's address. Images live in memory and end with the registry.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path"
	"sort"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/test/vm/seed"
)

// File is a file in an image: content with a mode, or a link.
type File struct {
	Mode    int64
	Content []byte
	Link    string
}

// Spec describes an image of one layer.
type Spec struct {
	// Files by absolute path.
	Files      map[string]File
	Entrypoint []string
	Env        []string
}

// Registry serves images.
type Registry struct {
	port    int
	server  *http.Server
	trouble *troubled
}

// Serve starts a registry on a port of the loopback address, any free one for 0.
func Serve(port int) (*Registry, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("cannot start the image registry: %w", err)
	}
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	// Referrers are how signatures are found when there is no tag of theirs.
	handler := registry.New(registry.Logger(silent), registry.WithReferrersSupport(true))
	r := &Registry{port: l.Addr().(*net.TCPAddr).Port, trouble: &troubled{behind: handler}}
	r.server = &http.Server{Handler: r.trouble, ErrorLog: silent}
	go r.server.Serve(l)
	return r, nil
}

// Address is the registry's host:port on the host.
func (r *Registry) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// GuestAddress is the registry's host:port as a guest sees it.
func (r *Registry) GuestAddress() string { return net.JoinHostPort(seed.HostIP, strconv.Itoa(r.port)) }

// Close ends the registry and forgets its images.
func (r *Registry) Close() { r.server.Close() }

// Push makes an image and stores it under a name such as "demo/app:1".
func (r *Registry) Push(ctx context.Context, repository string, s Spec) error {
	img, err := s.build()
	if err != nil {
		return err
	}
	return r.PushImage(ctx, repository, img)
}

// PushImage stores an image that somebody else made.
func (r *Registry) PushImage(ctx context.Context, repository string, img v1.Image) error {
	ref, err := name.ParseReference(r.Address()+"/"+repository, name.Insecure)
	if err != nil {
		return fmt.Errorf("cannot name image %q: %w", repository, err)
	}
	if err := remote.Write(ref, img, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("cannot push image %q: %w", repository, err)
	}
	return nil
}

// PushLayer stores an image of one layer, a tar file, for amd64.
func (r *Registry) PushLayer(ctx context.Context, repository, file string) error {
	layer, err := tarball.LayerFromFile(file)
	if err != nil {
		return fmt.Errorf("cannot make the layer of image %q: %w", repository, err)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: "amd64", OS: "linux"})
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err != nil {
		return fmt.Errorf("cannot make image %q: %w", repository, err)
	}
	return r.PushImage(ctx, repository, img)
}

// PushLayout stores what an OCI layout in a directory has first: an image, or an index of images.
func (r *Registry) PushLayout(ctx context.Context, repository, dir string) error {
	failed := func(err error) error { return fmt.Errorf("cannot push layout %q: %w", dir, err) }
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return failed(err)
	}
	list, err := all.IndexManifest()
	if err != nil {
		return failed(err)
	}
	if len(list.Manifests) == 0 {
		return failed(errors.New("it is empty"))
	}
	first := list.Manifests[0]
	if first.MediaType.IsImage() {
		img, err := all.Image(first.Digest)
		if err != nil {
			return failed(err)
		}
		return r.PushImage(ctx, repository, img)
	}
	index, err := all.ImageIndex(first.Digest)
	if err != nil {
		return failed(err)
	}
	ref, err := name.ParseReference(r.Address()+"/"+repository, name.Insecure)
	if err != nil {
		return failed(err)
	}
	return remote.WriteIndex(ref, index, remote.WithContext(ctx))
}

func (s Spec) build() (v1.Image, error) {
	content, err := s.tar()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("cannot make image layer: %w", err)
	}
	base := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, fmt.Errorf("cannot add image layer: %w", err)
	}
	config := v1.Config{
		Entrypoint: s.Entrypoint,
		Env:        append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, s.Env...),
		// Process 1 ignores signals that it has no handler for, so a pod of a plain program would take its whole grace
		// period to end.
		StopSignal: "SIGKILL",
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("cannot read image configuration: %w", err)
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Config = "amd64", "linux", config
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return nil, fmt.Errorf("cannot set image configuration: %w", err)
	}
	return img, nil
}

// tar is the layer. It has no times in it, so that the same files are always the same image.
func (s Spec) tar() ([]byte, error) {
	files := map[string]File{
		"/tmp/":       {Mode: 0o1777},
		"/etc/passwd": {Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\n")},
		"/etc/group":  {Mode: 0o644, Content: []byte("root:x:0:\n")},
	}
	for p, f := range s.Files {
		files[path.Clean("/"+p)] = f
	}
	for p := range files {
		for dir := path.Dir(strings.TrimSuffix(p, "/")); dir != "/"; dir = path.Dir(dir) {
			if _, there := files[dir+"/"]; !there {
				files[dir+"/"] = File{Mode: 0o755}
			}
		}
	}
	names := make([]string, 0, len(files))
	for p := range files {
		names = append(names, p)
	}
	sort.Strings(names)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, p := range names {
		f := files[p]
		header := &tar.Header{
			Name: strings.TrimPrefix(p, "/"), Mode: f.Mode, Size: int64(len(f.Content)),
			Typeflag: tar.TypeReg,
		}
		switch {
		case strings.HasSuffix(p, "/"):
			header.Typeflag = tar.TypeDir
		case f.Link != "":
			header.Typeflag, header.Linkname, header.Size, header.Mode = tar.TypeSymlink, f.Link, 0, 0o777
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("cannot write %q into an image: %w", p, err)
		}
		if _, err := w.Write(f.Content[:header.Size]); err != nil {
			return nil, fmt.Errorf("cannot write %q into an image: %w", p, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("cannot finish an image: %w", err)
	}
	return out.Bytes(), nil
}
