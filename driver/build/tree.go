package build

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// treeLimit bounds the number of files in a source tree: the largest known one has 10,000.
const treeLimit = 200_000

// copySource copies the source of a job to its work directory, and returns its digest.
func (b *Builder) copySource(j *job) (digest string, problem *accel.Problem) {
	at := b.tell.Begin(accel.Progress{Kind: j.def.Kind, Stage: accel.StageCopy, What: j.source.Path, Step: 1})
	defer func() { at.End(problem) }()
	digest, err := copyTree(b.h, j.source.Path, j.Work)
	if err != nil {
		return "", accel.ProblemOr(err, accel.SourceMissing, "cannot copy the source %q", j.source.Path)
	}
	return digest, nil
}

// copyTree copies a source tree to an empty directory and returns its digest. The digest covers the names, types and
// contents of everything that a build reads, but not times and owners. It leaves out files of earlier builds.
func copyTree(h *host.Host, from, to string) (string, error) {
	sum := sha256.New()
	count := 0
	if err := copyDir(h, from, to, "", sum, &count); err != nil {
		return "", err
	}
	if count == 0 {
		return "", fmt.Errorf("cannot use %q: it is empty", from)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func copyDir(h *host.Host, from, to, relative string, sum hash.Hash, count *int) error {
	entries, err := h.ReadDir(path.Join(from, relative))
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
	}
	for _, e := range entries {
		if leftover(e.Name(), there) {
			continue
		}
		if *count++; *count > treeLimit {
			return fmt.Errorf("cannot copy %q: more than %d files", from, treeLimit)
		}
		name := path.Join(relative, e.Name())
		switch e.Type() {
		case fs.ModeDir:
			fmt.Fprintf(sum, "dir %q\n", name)
			if err := h.MkdirAll(path.Join(to, name), 0o700); err != nil {
				return err
			}
			err = copyDir(h, from, to, name, sum, count)
		case fs.ModeSymlink:
			err = copyLink(h, from, to, name, sum)
		case 0:
			err = copyFile(h, from, to, name, sum)
		default:
			err = fmt.Errorf("cannot copy %q: neither a file, a directory nor a link", path.Join(from, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leftover reports whether an entry of a source directory was left by an earlier build or by version control.
func leftover(name string, there map[string]bool) bool {
	switch name {
	case ".git", ".hg", ".svn", ".tmp_versions", "Module.symvers", "modules.order", ".Module.symvers.cmd",
		".modules.order.cmd":
		return true
	}
	for _, suffix := range []string{".ko", ".mod", ".mod.c", ".mod.o"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	if strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".cmd") {
		return true
	}
	// Some vendors ship object files. Leave out only those for which kbuild has a .cmd file.
	return strings.HasSuffix(name, ".o") && there["."+name+".cmd"]
}

// copyLink copies a link that stays within the tree.
func copyLink(h *host.Host, from, to, name string, sum hash.Hash) error {
	text, err := h.Readlink(path.Join(from, name))
	if err != nil {
		return err
	}
	target := path.Join("/", path.Dir(name), text)
	if path.IsAbs(text) || strings.HasPrefix(path.Clean(path.Join(path.Dir(name), text)), "..") {
		return fmt.Errorf("cannot copy link %q: it leaves the source tree for %q", path.Join(from, name), target)
	}
	fmt.Fprintf(sum, "link %q %q\n", name, text)
	return h.Symlink(text, path.Join(to, name))
}

func copyFile(h *host.Host, from, to, name string, sum hash.Hash) error {
	in, err := h.Open(path.Join(from, name))
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o600) | st.Mode()&0o100
	out, err := h.Create(path.Join(to, name), mode)
	if err != nil {
		return err
	}
	content := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, content), in)
	fmt.Fprintf(sum, "file %q %t %x\n", name, mode&0o100 != 0, content.Sum(nil))
	return errors.Join(err, out.Close())
}
