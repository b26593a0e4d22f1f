package unpack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Archived is an unpacked redistributable archive.
type Archived struct {
	Tree
	// Top is the directory in the tree that has everything; "." if the archive has no directory of its own.
	Top      string
	Manifest Manifest
}

// pinForm is a SHA-256 in hexadecimal.
var pinForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Archive unpacks a redistributable archive, which is a tar, or a self-extracting one, which is such a tar behind a
// script, into the directory dir of h, which exists and is empty. File is on h. Nobody signs such archives, so the
// caller must know the SHA-256 of the file in hexadecimal; nothing is unpacked of another one. An archive without a
// manifest is an ArtifactInvalid. The files of a self-extracting archive are flat: [ManifestEntry] says where each
// belongs.
func Archive(ctx context.Context, h *host.Host, file, pin, dir string, b Bounds) (Archived, *accel.Problem) {
	if !pinForm.MatchString(pin) {
		return Archived{}, accel.Problemf(accel.ConfigInvalid,
			"the archive %q has no signature, so its SHA-256 must be given as 64 hexadecimal digits", path.Base(file))
	}
	f, err := h.Open(file)
	if err != nil {
		return Archived{}, accel.ProblemOr(err, accel.ArtifactNotFound, "cannot read an archive")
	}
	defer f.Close()
	sum := sha256.New()
	unlimited := int64(1) << 62
	if _, err := io.Copy(sum, bounded{f, &unlimited, ctx.Err}); err != nil {
		return Archived{}, accel.ProblemOf(err, "cannot read an archive")
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != pin {
		return Archived{}, accel.Problemf(accel.DigestMismatch, "the archive %q has SHA-256 %s, wanted is %s",
			path.Base(file), got, pin)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Archived{}, accel.ProblemOf(err, "cannot read an archive")
	}
	in, err := body(f)
	if err != nil {
		return Archived{}, accel.ProblemOr(err, accel.ArtifactInvalid, "the archive %q cannot be read", path.Base(file))
	}
	var out Archived
	var problem *accel.Problem
	if out.Tree, problem = Into(ctx, h, dir, in, Tar, b); problem != nil {
		return Archived{}, problem
	}
	problem = out.describe(h, dir)
	return out, problem
}

// describe reads the manifest.
func (a *Archived) describe(h *host.Host, dir string) *accel.Problem {
	i := slices.IndexFunc(a.Files, func(f File) bool {
		base := path.Base(f.Path)
		return f.Link == "" && (base == "MANIFEST" || base == ".manifest") && strings.Count(f.Path, "/") <= 1
	})
	if i < 0 {
		return accel.Problemf(accel.ArtifactInvalid, "the archive has no manifest that says what its files are")
	}
	a.Top = path.Dir(a.Files[i].Path)
	f, err := h.Open(path.Join(dir, a.Files[i].Path))
	if err != nil {
		return accel.ProblemOf(err, "cannot read a manifest")
	}
	defer f.Close()
	if a.Manifest, err = ParseManifest(f); err != nil {
		return accel.ProblemOr(err, accel.ArtifactInvalid, "the manifest of the archive cannot be read")
	}
	return nil
}
