package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// treeLimit bounds the number of files in a source tree: the largest known one has 10,000.
const treeLimit = 200_000

// copySource copies the source of a job to its work directory, and returns its digest.
func (b *Builder) copySource(ctx context.Context, j *job) (digest string, problem *accel.Problem) {
	at := b.tell.Begin(accel.Progress{Kind: j.def.Kind, Stage: accel.StageCopy, What: j.source.Path, Step: 1})
	defer func() { at.End(problem) }()
	digest, err := copyTree(ctx, b.h, j.source.Path, j.Work)
	if err != nil {
		return "", accel.ProblemOr(err, accel.SourceMissing, "cannot copy the source %q", j.source.Path)
	}
	return digest, nil
}

// copyTree copies a source tree to an empty directory and returns its digest. The digest covers the names, types and
// contents of everything that a build reads, but not times and owners. It leaves out files of earlier builds.
func copyTree(ctx context.Context, h *host.Host, from, to string) (string, error) {
	c := &copying{h: h, from: from, to: to, sum: sha256.New(), ended: ctx.Err}
	if err := c.dir(""); err != nil {
		return "", err
	}
	if c.count == 0 {
		return "", fmt.Errorf("cannot use %q: it is empty", from)
	}
	return hex.EncodeToString(c.sum.Sum(nil)), nil
}

// copying is a copy of a source tree in progress.
type copying struct {
	h        *host.Host
	from, to string
	sum      hash.Hash
	count    int
	ended    func() error // why the work was called off; nil if it was not
}

// dir copies a directory; its name and those of what is in it are relative to the tree.
func (c *copying) dir(relative string) error {
	entries, err := c.h.ReadDir(path.Join(c.from, relative))
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
	}
	for _, e := range entries {
		if err := c.ended(); err != nil {
			return err
		}
		if leftover(e.Name(), there) {
			continue
		}
		if c.count++; c.count > treeLimit {
			return fmt.Errorf("cannot copy %q: more than %d files", c.from, treeLimit)
		}
		name := path.Join(relative, e.Name())
		switch e.Type() {
		case fs.ModeDir:
			fmt.Fprintf(c.sum, "dir %q\n", name)
			if err = c.h.MkdirAll(path.Join(c.to, name), 0o700); err == nil {
				err = c.dir(name)
			}
		case fs.ModeSymlink:
			err = c.link(name)
		case 0:
			err = c.file(name)
		default:
			err = fmt.Errorf("cannot copy %q: neither a file, a directory nor a link", path.Join(c.from, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leftovers are the names of what earlier builds and version control leave.
var leftovers = regexp.MustCompile(
	`(?s)^(\.git|\.hg|\.svn|\.tmp_versions|Module\.symvers|modules\.order|(\..*)?\.cmd|.*\.(ko|mod|mod\.c|mod\.o))$`)

// leftover reports whether an entry of a source directory was left by an earlier build or by version control. Some
// vendors ship object files: only those are left out for which kbuild has a .cmd file.
func leftover(name string, there map[string]bool) bool {
	return leftovers.MatchString(name) || strings.HasSuffix(name, ".o") && there["."+name+".cmd"]
}

// link copies a link that stays within the tree.
func (c *copying) link(name string) error {
	text, err := c.h.Readlink(path.Join(c.from, name))
	if err != nil {
		return err
	}
	target := path.Join("/", path.Dir(name), text)
	if path.IsAbs(text) || strings.HasPrefix(path.Clean(path.Join(path.Dir(name), text)), "..") {
		return fmt.Errorf("cannot copy link %q: it leaves the source tree for %q", path.Join(c.from, name), target)
	}
	fmt.Fprintf(c.sum, "link %q %q\n", name, text)
	return c.h.Symlink(text, path.Join(c.to, name))
}

func (c *copying) file(name string) error {
	in, err := c.h.Open(path.Join(c.from, name))
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o600) | st.Mode()&0o100
	out, err := c.h.Create(path.Join(c.to, name), mode)
	if err != nil {
		return err
	}
	content := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, content), in)
	fmt.Fprintf(c.sum, "file %q %t %x\n", name, mode&0o100 != 0, content.Sum(nil))
	return errors.Join(err, out.Close())
}
