package stage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/test/vm/bed"
)

// Source puts the driver's source where a distribution's source package would, and nothing else: the guest has no
// driver.
func (s *Stage) Source(ctx context.Context, g *bed.Guest) error {
	return s.SourceOf(ctx, g, Version)
}

// SourceOf puts the source of one version of the driver at /usr/src/edu-<version>.
func (s *Stage) SourceOf(ctx context.Context, g *bed.Guest, version string) error {
	dir := "/usr/src/edu-" + version
	files, err := s.sourceFiles(version)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := g.WriteFile(ctx, dir+"/"+name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sourceFiles are the files of one version, by name.
func (s *Stage) sourceFiles(version string) (map[string][]byte, error) {
	dir := s.File("test/edu/module")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		name := e.Name()
		if ext := filepath.Ext(name); ext != ".c" && ext != ".h" && name != "Kbuild" && name != "Makefile" &&
			name != "dkms.conf" {
			continue
		}
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	for _, change := range []struct{ file, from, to string }{
		{"dkms.conf", fmt.Sprintf("PACKAGE_VERSION=%q", Version), fmt.Sprintf("PACKAGE_VERSION=%q", version)},
		{"edu_version.h", fmt.Sprintf("EDU_VERSION\t%q", Version), fmt.Sprintf("EDU_VERSION\t%q", version)},
		{"edu_version.h", "EDU_WRONG_BY\t0", "EDU_WRONG_BY\t" + map[bool]string{
			true:  "1",
			false: "0",
		}[version == VersionWrong]},
	} {
		if !strings.Contains(string(files[change.file]), change.from) {
			return nil, fmt.Errorf("cannot make version %s of the driver: %q has no %q", version, change.file,
				change.from)
		}
		files[change.file] = bytes.Replace(files[change.file], []byte(change.from), []byte(change.to), 1)
	}
	return files, nil
}

// PutTree copies a folder of this host into the guest.
func (s *Stage) PutTree(ctx context.Context, g *bed.Guest, local, path string) error {
	packed := filepath.Join(s.bin, "tree.tar")
	if out, err := exec.CommandContext(ctx, "tar", "-C", local, "-cf", packed, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("cannot pack %q: %w: %s", local, err, out)
	}
	if err := g.Put(ctx, packed, "/tmp/tree.tar", 0o600); err != nil {
		return err
	}
	return Must(g.Sh(ctx, `mkdir -p "$1"; tar -C "$1" -xf /tmp/tree.tar --no-same-owner; rm /tmp/tree.tar`, path))
}
