package main

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // nfpm.Get finds it
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // the same
)

// maintainer is the maintainer that a package names, in Debian's form "name <address>".
const maintainer = "acceld <packages@acceld.dev>"

// Options describe the packages of one processor.
type Options struct {
	Root, Bin string
	// Share is the directory with the files for /usr/share, as `make man` writes it; it may be missing.
	Share   string
	Version string
	// Created is the time of everything in the packages.
	Created time.Time
}

// Formats returns the supported formats.
func Formats() []string { return []string{"deb", "rpm"} }

// Write creates a package in the directory out and returns its file. It fails if a program is missing, is not static
// though it must be, or is for a different processor than the others.
func Write(format string, o Options, out string) (string, error) {
	p, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(out, ".package-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }() // temporary files only
	info, err := describe(format, o, work)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := p.Package(info, &b); err != nil {
		return "", err
	}
	made := filepath.Join(work, "package")
	if err := os.WriteFile(made, b.Bytes(), 0o644); err != nil {
		return "", err
	}
	file := filepath.Join(out, p.ConventionalFileName(info))
	return file, os.Rename(made, file)
}

// describe returns the contents of the package. Files that the tree does not have in the needed form are created in
// work.
func describe(format string, o Options, work string) (*nfpm.Info, error) {
	programs, arch, err := programsIn(o.Bin)
	if err != nil {
		return nil, err
	}
	contents, err := inTree(format, o.Root)
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		contents = append(contents, file(filepath.Join(o.Bin, p), "/usr/bin/"+p, 0o755))
	}
	made, err := compressed(format, o, work)
	if err != nil {
		return nil, err
	}
	contents = append(contents, made...)
	if format == "rpm" {
		contents = append(contents, directories(contents)...)
	}
	for _, c := range contents {
		c.FileInfo.MTime = o.Created
	}
	script := func(name string) string { return filepath.Join(o.Root, "packaging/packages", format, name) }
	info := &nfpm.Info{
		Name: "acceld", Arch: arch, Platform: "linux", Version: o.Version, VersionSchema: "none",
		Section: "admin", Priority: "optional", Maintainer: maintainer, Homepage: "https://github.com/acceld/acceld",
		License: "Apache-2.0", MTime: o.Created, DisableGlobbing: true, Description: description,
		Overridables: nfpm.Overridables{Contents: contents, Umask: 0o022},
	}
	if slices.Contains(programs, library) || slices.Contains(programs, prover) {
		info.Depends = []string{map[string]string{"deb": "libc6", "rpm": "glibc"}[format]}
	}
	switch format {
	case "deb":
		info.Scripts = nfpm.Scripts{
			PostInstall: script("postinst"), PreRemove: script("prerm"),
			PostRemove: script("postrm"),
		}
		// Building a driver needs a compiler and the kernel's headers; loading an existing one needs neither.
		info.Suggests = []string{"gcc", "make", "linux-headers-generic"}
		info.Deb.Compression = "xz"
	case "rpm":
		info.Scripts = nfpm.Scripts{
			PostInstall: script("post"), PreRemove: script("preun"),
			PostRemove: script("postun"),
		}
		info.Release, info.Vendor = "1", "acceld"
		info.RPM.Summary, _, _ = strings.Cut(description, "\n")
		info.RPM.Group, info.RPM.BuildHost, info.RPM.Compression = "System Environment/Daemons", "localhost", "xz"
		info.Suggests = []string{"gcc", "make", "kernel-devel"}
	}
	return nfpm.WithDefaults(info), nil
}

// directories returns the directories that an rpm must own so that they are removed with it: rpm leaves unowned
// directories behind. Every package with files for a shell that may not be installed owns the shell's directories.
func directories(contents files.Contents) files.Contents {
	owned := regexp.MustCompile("/acceld(/|$)|^/usr/share/(bash-completion|fish|zsh)(/|$)")
	var dirs files.Contents
	seen := map[string]bool{}
	for _, c := range contents {
		for dir := filepath.Dir(c.Destination); dir != "/"; dir = filepath.Dir(dir) {
			if owned.MatchString(dir) && !seen[dir] {
				seen[dir] = true
				dirs = append(dirs, &files.Content{
					Type: files.TypeDir, Destination: dir,
					FileInfo: &files.ContentFileInfo{Mode: 0o755},
				})
			}
		}
	}
	return dirs
}

const description = `kernel drivers and container access for accelerators
One agent for a host with accelerators: it finds them, gets and loads the
drivers that they need, lets containers use them, and says how they are. It
serves a kubelet where there is one, and needs none.`

// programsIn returns the agent's programs in a directory, and their GOARCH.
func programsIn(bin string) (names []string, arch string, err error) {
	all, err := filepath.Glob(filepath.Join(bin, "acceld*"))
	if err != nil {
		return nil, "", err
	}
	for _, path := range all {
		name := filepath.Base(path)
		if name == "acceld-controller" {
			continue // it runs in a cluster, not on a host
		}
		is, err := architecture(path, name == library || name == prover)
		if err != nil {
			return nil, "", fmt.Errorf("cannot use program %q: %w", name, err)
		}
		if arch != "" && is != arch {
			return nil, "", fmt.Errorf("cannot use program %q: it is for %s, the others are for %s", name, is, arch)
		}
		names, arch = append(names, name), is
	}
	for _, needed := range []string{"acceld", "acceld-hook"} {
		if !slices.Contains(names, needed) {
			return nil, "", fmt.Errorf("cannot find program %q in %q: make build", needed, bin)
		}
	}
	return names, arch, nil
}

// library is the program that loads a library of the host, for which it needs the C library. A package may lack it.
// If the host's C library is too old, only this program fails to start, and the agent reports it.
const library = "acceld-nvml"

// prover is another one that loads a library of the host.
const prover = "acceld-prove"

// architecture returns the GOARCH of a program for Linux. The program must be static unless dynamic is true.
func architecture(path string, dynamic bool) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // opened for reading
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && !dynamic {
			return "", errors.New("it is not static: build it with CGO_ENABLED=0")
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

func file(source, destination string, mode fs.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: mode}}
}

// place says where files of the tree go: all files that match pattern into dir, or a single one to name.
type place struct {
	pattern, dir, name string
	mode               fs.FileMode
	config             bool
	only               string // a format; empty for both
}

func places() []place {
	return []place{
		{pattern: "systemd/*.service", dir: "/usr/lib/systemd/system", mode: 0o644},
		{pattern: "systemd/*.socket", dir: "/usr/lib/systemd/system", mode: 0o644},
		{pattern: "packaging/packages/config.yaml", dir: "/etc/acceld", mode: 0o644, config: true},
		{pattern: "docs/config.yaml", dir: "/usr/share/doc/acceld", mode: 0o644},
		{pattern: "docs/schemas/*.json", dir: "/usr/share/doc/acceld/schemas", mode: 0o644}, // editors read them
		// Debian's kernel packages run the hooks below /etc/kernel; those of Fedora, SUSE and Red Hat run
		// kernel-install(8).
		{
			pattern: "packaging/kernel/acceld-preflight", name: "/etc/kernel/postinst.d/zz-acceld", mode: 0o755,
			config: true, only: "deb",
		},
		{
			pattern: "packaging/kernel/acceld-preflight", name: "/etc/kernel/header_postinst.d/zz-acceld", mode: 0o755,
			config: true, only: "deb",
		},
		{
			pattern: "packaging/kernel/acceld-preflight", name: "/usr/lib/kernel/install.d/95-acceld.install",
			mode: 0o755,
			only: "rpm",
		},
		{pattern: "packaging/packages/copyright", dir: "/usr/share/doc/acceld", mode: 0o644, only: "deb"},
		{
			pattern: "packaging/packages/deb/overrides", name: "/usr/share/lintian/overrides/acceld", mode: 0o644,
			only: "deb",
		},
		{pattern: "LICENSE", dir: "/usr/share/licenses/acceld", mode: 0o644, only: "rpm"},
	}
}

// inTree returns the files that are packed unchanged from the tree. A pattern without a match is an error.
func inTree(format, root string) (files.Contents, error) {
	contents := files.Contents{{
		Type: files.TypeDir, Destination: "/etc/acceld/definitions.d",
		FileInfo: &files.ContentFileInfo{Mode: 0o755},
	}}
	for _, p := range places() {
		if p.only != "" && p.only != format {
			continue
		}
		found, err := filepath.Glob(filepath.Join(root, p.pattern))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("cannot find %q: %v", p.pattern, err)
		}
		for _, source := range found {
			destination := p.name
			if destination == "" {
				destination = p.dir + "/" + filepath.Base(source)
			}
			c := file(source, destination, p.mode)
			if p.config {
				c.Type = files.TypeConfigNoReplace
			}
			contents = append(contents, c)
		}
	}
	return contents, nil
}

// compressed returns the manual pages, compressed, and the shell completions, if they were built, and the changelog
// that Debian requires.
func compressed(format string, o Options, work string) (files.Contents, error) {
	var contents files.Contents
	share := os.DirFS(o.Share)
	err := fs.WalkDir(share, ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == "." {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "acceld-controller") {
			return err
		}
		if !strings.HasPrefix(name, "man/") {
			destination := name
			if format == "rpm" { // where rpm distributions look for completions of packages
				destination = strings.Replace(name, "zsh/vendor-completions", "zsh/site-functions", 1)
			}
			contents = append(contents, file(filepath.Join(o.Share, name), "/usr/share/"+destination, 0o644))
			return nil
		}
		text, err := fs.ReadFile(share, name)
		if err != nil {
			return err
		}
		c, err := gzipped(work, d.Name(), text, "/usr/share/"+filepath.Dir(name))
		contents = append(contents, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	if format == "deb" {
		text := fmt.Sprintf(
			"acceld (%s) stable; urgency=medium\n\n  * What changed is in the history of the source.\n\n -- %s  %s\n",
			o.Version, maintainer, o.Created.Format(time.RFC1123Z))
		c, err := gzipped(work, "changelog", []byte(text), "/usr/share/doc/acceld")
		if err != nil {
			return nil, err
		}
		contents = append(contents, c)
	}
	return contents, nil
}

func gzipped(work, name string, text []byte, dir string) (*files.Content, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	source := filepath.Join(work, name+".gz")
	return file(source, dir+"/"+name+".gz", 0o644), os.WriteFile(source, b.Bytes(), 0o644)
}
