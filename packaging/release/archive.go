package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// entry is a file of an archive.
type entry struct {
	name string
	mode fs.FileMode
	data []byte
}

// pack writes files into a gzipped tar, all of one time and owned by root.
func pack(path string, files []entry, created time.Time) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode.Perm()), Size: int64(len(f.data)), ModTime: created,
			Uname: "root", Gname: "root", Format: tar.FormatPAX,
		}); err != nil {
			return fmt.Errorf("cannot pack %q: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return fmt.Errorf("cannot pack %q: %w", f.name, err)
		}
	}
	if err := cmp.Or(w.Close(), z.Close()); err != nil {
		return fmt.Errorf("cannot write %q: %w", path, err)
	}
	return replace(path, b.Bytes(), 0o644)
}

// replace writes a file as a whole or not at all.
func replace(path string, data []byte, mode fs.FileMode) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return fmt.Errorf("cannot write the release: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp) // the error is that of the rename
		return fmt.Errorf("cannot write the release: %w", err)
	}
	return nil
}

// archive packs the files of a host for one processor. The archive has one directory, with the paths of the host
// below it.
func (o *Options) archive(dir string) error {
	name := fmt.Sprintf("acceld-%s-linux-%s", o.Version, filepath.Base(dir))
	var files []entry
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%q is no regular file", path)
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		files = append(files, entry{name + "/" + path, info.Mode(), data})
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot pack %q: %w", dir, err)
	}
	if len(files) == 0 {
		return fmt.Errorf("cannot pack %q: it is empty", dir)
	}
	return pack(filepath.Join(o.Out, name+".tar.gz"), files, o.Created)
}

func (o *Options) chartFile() string { return "acceld-chart-" + o.Version + ".tgz" }

// chart packs the chart. Its version and that of its images are the release's.
func (o *Options) chart() error {
	c, err := loader.LoadDir(filepath.Join(o.Root, "packaging/chart"))
	if err != nil {
		return fmt.Errorf("cannot read the chart: %w", err)
	}
	var files []entry
	for _, f := range c.Raw {
		data := f.Data
		if f.Name == "Chart.yaml" {
			if data, err = o.described(c.Metadata); err != nil {
				return err
			}
		}
		files = append(files, entry{c.Name() + "/" + f.Name, 0o644, data})
	}
	return pack(filepath.Join(o.Out, o.chartFile()), files, o.Created)
}

func (o *Options) described(m *chart.Metadata) ([]byte, error) {
	m.Version, m.AppVersion = o.Version, o.Version
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("cannot describe the chart: %w", err)
	}
	return yaml.Marshal(m)
}
