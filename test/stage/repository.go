package stage

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/deb"
	"github.com/acceld/acceld/test/edu/user"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/seed"
)

// Packages is a signed repository of Debian packages that a guest reaches.
type Packages struct {
	*httptest.Server
	// URL is the one that a guest gives; Key is the public key that signs it.
	URL string
	Key []byte
}

// Packages serves packages with what a host without any needs for a driver of the version: the headers of the guest's
// kernel as its Debian has them, the driver's source, its library and its program. The caller closes it.
func (s *Stage) Packages(ctx context.Context, g *bed.Guest, version string) (*Packages, error) {
	r, err := deb.NewRepository()
	if err != nil {
		return nil, err
	}
	base := accel.Kernel{Release: g.Kernel(), Arch: "x86_64"}.Base()
	for name, dirs := range map[string][]string{
		"linux-headers-" + g.Kernel():       {"usr/src/linux-headers-" + g.Kernel(), "lib/modules/" + g.Kernel()},
		"linux-headers-" + base + "-common": {"usr/src/linux-headers-" + base + "-common"},
		"linux-kbuild-6.1":                  {"usr/lib/linux-kbuild-6.1"},
	} {
		files := map[string]string{}
		for _, dir := range dirs {
			if err := packed(g.Tree(), dir, files); err != nil {
				return nil, err
			}
		}
		r.Add(name, "6.1-1", "amd64", deb.Package(name, "6.1-1", "amd64", files))
	}
	source, err := s.sourceFiles(version)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, text := range source {
		files["usr/src/edu-"+version+"/"+name] = string(text)
	}
	r.Add("edu-source", version+"-1", "amd64", deb.Package("edu-source", version+"-1", "amd64", files))
	dir, err := os.MkdirTemp(s.bin, "packages-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := user.Root(ctx, dir, version, s.File("test/edu/module/edu.h")); err != nil {
		return nil, err
	}
	for name, part := range map[string]string{"libedu1": user.Libraries, "edu-smi": user.Programs} {
		files := map[string]string{"usr/share/doc/" + name + "/copyright": "GPL-2.0\n"}
		if err := packed(dir, strings.TrimPrefix(part, "/"), files); err != nil {
			return nil, err
		}
		r.Add(name, version+"-1", "amd64", deb.Package(name, version+"-1", "amd64", files))
	}
	out := &Packages{}
	if out.Key, err = r.Key(); err == nil {
		err = r.Publish()
	}
	if err != nil {
		return nil, err
	}
	out.Server = httptest.NewServer(r)
	_, port, err := net.SplitHostPort(out.Listener.Addr().String())
	out.URL = fmt.Sprintf("http://%s:%s/debian", seed.HostIP, port)
	return out, err
}

// packed adds the files and links of a folder below root, as a package has them.
func packed(root, dir string, files map[string]string) error {
	return filepath.WalkDir(filepath.Join(root, dir), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		at := strings.TrimPrefix(name, root+"/")
		if e.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(name)
			files[at] = "-> " + to
			return err
		}
		text, err := os.ReadFile(name)
		files[at] = string(text)
		return err
	})
}
