package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Write writes a release as an OCI layout: into the directory out, which it replaces, or into the file out if that
// ends in ".tar". The layout's index names it ref, in full ("io.containerd.image.name") and as a tag.
func Write(r *Release, out, ref string) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("cannot write the layout: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(out), ".image-*")
	if err != nil {
		return fmt.Errorf("cannot write the layout: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // empty, or what an error left
	dir := filepath.Join(tmp, "layout")
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("cannot write the layout: %w", err)
	}
	parsed, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("cannot use name %q: %w", ref, err)
	}
	if err := fill(l, r, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": parsed.TagStr(),
		"io.containerd.image.name":          parsed.Name(),
	})); err != nil {
		return fmt.Errorf("cannot write the layout: %w", err)
	}
	if strings.HasSuffix(out, ".tar") {
		return archive(dir, filepath.Join(tmp, "tar"), out)
	}
	if err := replaceable(out); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("cannot replace the layout: %w", err)
	}
	return os.Rename(dir, out)
}

// fill adds a release to an empty layout, under the name in the annotations. Attached lists have no name: clients
// find them by their subject.
func fill(l layout.Path, r *Release, named layout.Option) error {
	if r.Index != nil {
		if err := l.AppendIndex(r.Index, named); err != nil {
			return err
		}
	} else {
		platform, err := platformOf(r.Images[0])
		if err != nil {
			return err
		}
		if err := l.AppendImage(r.Images[0], layout.WithPlatform(*platform), named); err != nil {
			return err
		}
	}
	for _, list := range r.Lists {
		if err := l.AppendImage(list); err != nil {
			return err
		}
	}
	return nil
}

// replaceable fails for a directory that is not a layout: it is probably the wrong one.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) || (err == nil && len(entries) == 0) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err != nil {
		return fmt.Errorf("cannot replace %q: it is not an OCI layout", dir)
	}
	return nil
}

// archive packs the files of dir into one tar, sorted and without times, and moves it to out.
func archive(dir, tmp, out string) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return add(w, name, 0o644, data, time.Time{})
	})
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = os.WriteFile(tmp, buf.Bytes(), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp, out)
	}
	if err != nil {
		return fmt.Errorf("cannot write the archive: %w", err)
	}
	return nil
}

// add adds a file to a tar.
func add(w *tar.Writer, name string, mode int64, data []byte, modified time.Time) error {
	if err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: modified,
		Format: tar.FormatUSTAR,
	}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// Push pushes a release to ref with the credentials of the user's container tools.
func Push(r *Release, ref string, insecure bool) error {
	var options []name.Option
	if insecure {
		options = append(options, name.Insecure)
	}
	tag, err := name.ParseReference(ref, options...)
	if err != nil {
		return fmt.Errorf("cannot push to %q: %w", ref, err)
	}
	if insecure && !loopback(tag.Context().RegistryStr()) {
		return fmt.Errorf("cannot push to %q without TLS: the registry is not on a loopback address", ref)
	}
	auth := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if r.Index != nil {
		err = remote.WriteIndex(tag, r.Index, auth)
	} else {
		err = remote.Write(tag, r.Images[0], auth)
	}
	for _, list := range r.Lists {
		if err != nil {
			break
		}
		var digest v1.Hash
		if digest, err = list.Digest(); err == nil {
			err = remote.Write(tag.Context().Digest(digest.String()), list, auth)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot push to %q: %w", ref, err)
	}
	return nil
}

func loopback(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = registry // without a port
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
