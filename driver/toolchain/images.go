package toolchain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/progress"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/driver/trust"
	"github.com/acceld/acceld/host"
)

// Options of [Images]; all but the limits are required.
type Options struct {
	Log   *slog.Logger
	Store *store.Store
	Tell  progress.Teller
	// StateDir is the agent's persistent directory, as a path on the host.
	StateDir string
	// Artifact configures access to registries.
	Artifact artifact.Options
	// Trust is the host's policy on signatures.
	Trust accel.Trust
	// Spare says that one image that no source names any more is kept, the newest. MiB bounds its size; no bound when
	// zero.
	Spare bool
	MiB   int
}

// Images are the builder images of one host. Its methods are safe for concurrent use, even by several processes.
type Images struct {
	h *host.Host
	o Options
}

// New returns the builder images of a host.
func New(h *host.Host, o Options) *Images { return &Images{h, o} }

// Image is what a source names as its builder image.
type Image struct {
	// Name is how the source names it, with templates filled.
	Name string `json:"name"`
	// Digest is that of its manifest, for this machine's architecture: "sha256:" and 64 hexadecimal digits.
	Digest string `json:"digest"`
	// Reference is where it was found, with its digest.
	Reference string         `json:"reference"`
	Signers   []trust.Signer `json:"signers,omitempty"`
	// Note says for people why this is the image that was used before, although no registry confirmed it; empty if one
	// did, or if the name has a digest.
	Note string `json:"-"`
}

// use is the record that a kind builds, for a kernel, with an image. It is also what a tag last meant.
type use struct {
	Kind   string `json:"kind"`
	Kernel string `json:"kernel"` // uname -r
	Image
}

// hexOf returns the hexadecimal digits of a digest. They name the directory of an image.
func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

func (x *Images) dir() string { return path.Join(x.o.StateDir, "builders") }

// Dir is the directory of an image's file system, as a path on the host.
func (x *Images) Dir(i Image) string { return path.Join(x.dir(), hexOf(i.Digest)) }

func (x *Images) usesFile() string { return path.Join(x.dir(), "uses.json") }

// uses reads the records. If they are damaged, there are none: every tag is asked for again.
func (x *Images) uses() []use {
	var out []use
	text, err := x.h.ReadFile(x.usesFile())
	if err != nil {
		return nil
	}
	if err := json.Unmarshal(text, &out); err != nil {
		x.o.Log.Warn("cannot read which builder images are in use", "file", x.usesFile(), "error", err)
		return nil
	}
	return out
}

func (x *Images) write(all []use) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return x.h.WriteFile(x.usesFile(), append(text, '\n'), 0o600)
}

// lock keeps other processes from placing and removing images.
func (x *Images) lock(ctx context.Context) (release func(), err error) {
	if err := x.h.MkdirAll(x.dir(), 0o700); err != nil {
		return nil, err
	}
	return x.h.Locks().Take(ctx, path.Join(x.dir(), "lock"), "")
}

// Fill returns s with the template of its image filled.
func Fill(def *accel.Definition, facts accel.Facts, s accel.Source) (accel.Source, *accel.Problem) {
	var problem *accel.Problem
	s.Image, problem = template.Fill(def, facts, "driver.sources.image", s.Image)
	return s, problem
}

// Find finds out which image the source s of def names now, for a machine with these facts; it does not fetch it yet. A
// registry is asked about a tag, and about a digest that is not here. If it cannot be reached, the image that the tag
// meant last is used if it is here: its note says so.
func (x *Images) Find(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source) (Image,
	*accel.Problem,
) {
	s, problem := Fill(def, facts, s)
	if problem != nil {
		return Image{}, problem
	}
	name := s.ImageName()
	last, here := x.last(name, s)
	if here && strings.Contains(name, "@sha256:") {
		return last, nil
	}
	w, done, problem := x.o.Store.Workspace("")
	if problem != nil {
		return Image{}, problem
	}
	defer done()
	o := x.o.Artifact
	o.Trust, o.Progress = x.o.Trust, nil
	o.Known = func(artifact.Pulled) bool { return true } // what it is, and nothing of it
	found, problem := artifact.New(x.h, o).PullImage(ctx, s, facts.Kernel.Arch, w.Work)
	switch {
	case problem == nil:
		return Image{Name: name, Digest: found.Digest, Reference: found.Reference, Signers: found.Signers}, nil
	case problem.Reason == accel.RegistryUnreachable && here && ctx.Err() == nil:
		last.Note = fmt.Sprintf("the builder image %q is the one that was used before, %s: %s", name, last.Digest,
			problem.Message)
		x.o.Log.Info("the builder image is the last known one", "kind", def.Kind, "image", name, "digest", last.Digest,
			"message", problem.Message)
		return last, nil
	}
	problem.Message = fmt.Sprintf("cannot get the builder image %q: %s", name, problem.Message)
	return Image{}, problem
}

// last returns what a name meant last, if that image is here and its signers satisfy the source and the host today.
func (x *Images) last(name string, s accel.Source) (Image, bool) {
	all := x.uses()
	i := slices.IndexFunc(all, func(u use) bool { return u.Name == name })
	if i < 0 || !x.h.Exists(x.Dir(all[i].Image)) {
		return Image{}, false
	}
	keys, problem := trust.Read(x.h, accel.Trust{Keys: s.Keys})
	if problem != nil || !keys.Empty() && !keys.Has(all[i].Signers) {
		return Image{}, false
	}
	if x.o.Trust.Require {
		if known, problem := trust.Read(x.h, x.o.Trust); problem != nil || !known.Has(all[i].Signers) {
			return Image{}, false
		}
	}
	return all[i].Image, true
}

// marker is the file in a workspace that names the image which its build uses.
const marker = "builder"

// Open fetches and unpacks an image that [Images.Find] found for s, unless it is here already, and keeps it until the
// workspace ends. It returns the directory of its file system.
func (x *Images) Open(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source, i Image,
	w *store.Workspace,
) (string, *accel.Problem) {
	u := use{Kind: def.Kind, Kernel: facts.Kernel.Release, Image: i}
	if placed, problem := x.place(ctx, u, "", w); placed || problem != nil {
		return x.Dir(i), problem
	}
	release, problem := x.o.Store.LockKey(ctx, def.Kind, "builder-"+hexOf(i.Digest)[:32])
	if problem != nil {
		return "", problem
	}
	defer release()
	if placed, problem := x.place(ctx, u, "", w); placed || problem != nil { // another process fetched it meanwhile
		return x.Dir(i), problem
	}
	s, problem = Fill(def, facts, s)
	if problem != nil {
		return "", problem
	}
	s.Image, _, _ = strings.Cut(s.Image, "@")
	s.Digest, s.Keys = i.Digest, nil // who signed it was judged, and the digest says that it is the same
	from, done, problem := x.o.Store.Workspace("")
	if problem != nil {
		return "", problem
	}
	defer done()
	o := x.o.Artifact
	o.Trust, o.Known = accel.Trust{}, nil
	o.Progress = x.o.Tell.Of(def.Kind)
	began := time.Now()
	if _, problem = artifact.New(x.h, o).PullImage(ctx, s, facts.Kernel.Arch, from.Work); problem != nil {
		problem.Message = fmt.Sprintf("cannot get the builder image %q: %s", i.Name, problem.Message)
		return "", problem
	}
	if _, problem = x.place(ctx, u, path.Join(from.Work, "root"), w); problem != nil {
		return "", problem
	}
	x.o.Log.Info("builder image fetched", "kind", def.Kind, "image", i.Name, "digest", i.Digest, "took",
		time.Since(began).Round(time.Millisecond))
	return x.Dir(i), nil
}

// place records the use of an image by a workspace, after moving the image from a directory to its place unless that is
// empty. It reports whether the image is there.
func (x *Images) place(ctx context.Context, u use, from string, w *store.Workspace) (bool, *accel.Problem) {
	release, err := x.lock(ctx)
	if err != nil {
		return false, accel.ProblemOf(err, "cannot keep a builder image")
	}
	defer release()
	dir := x.Dir(u.Image)
	if from != "" && !x.h.Exists(dir) {
		err = x.h.Rename(from, dir)
	}
	if err == nil && !x.h.Exists(dir) {
		return false, nil
	}
	if err == nil {
		err = x.h.WriteFile(path.Join(w.Dir, marker), []byte(hexOf(u.Digest)), 0o600)
	}
	if err == nil {
		all := []use{u}
		for _, old := range x.uses() {
			if old.Name == u.Name {
				old.Image = u.Image // that is what the name means now
			}
			if old.Kind != u.Kind || old.Kernel != u.Kernel || old.Name != u.Name {
				all = append(all, old)
			}
		}
		err = x.write(all)
	}
	if err != nil {
		return false, accel.ProblemOf(err, "cannot keep a builder image")
	}
	return true, nil
}

// Collect removes the images that no source of a kind names any more, as far as that is known: def is the definition of
// one kind, and the others are as they were when they last built. Images of builds in progress stay, and one more.
func (x *Images) Collect(ctx context.Context, def *accel.Definition, facts accel.Facts) {
	x.forget(facts, time.Now())
	if !x.h.Exists(x.dir()) {
		return
	}
	w, done, problem := x.o.Store.Workspace("")
	if problem != nil {
		x.o.Log.Warn("cannot remove builder images", "message", problem.Message)
		return
	}
	defer done() // and what was moved there
	release, err := x.lock(ctx)
	if err != nil {
		x.o.Log.Warn("cannot remove builder images", "error", err)
		return
	}
	defer release()
	needed := x.needed(def, facts)
	type image struct {
		digest string
		born   time.Time
	}
	var unneeded []image
	for _, dir := range x.h.Glob(x.dir(), strings.Repeat("[0-9a-f]", 64)) {
		if digest := path.Base(dir); !needed[digest] {
			unneeded = append(unneeded, image{digest, x.h.Born(dir)})
		}
	}
	slices.SortFunc(unneeded, func(a, b image) int {
		return cmp.Or(b.born.Compare(a.born), strings.Compare(a.digest, b.digest))
	})
	for i, old := range unneeded {
		dir := path.Join(x.dir(), old.digest)
		if i == 0 && x.o.Spare && (x.o.MiB == 0 || x.o.Store.Size(dir) <= int64(x.o.MiB)<<20) {
			continue
		}
		if err := x.h.Rename(dir, path.Join(w.Dir, old.digest)); err != nil {
			x.o.Log.Warn("cannot remove a builder image", "digest", old.digest, "error", err)
			continue
		}
		x.o.Log.Info("builder image removed", "digest", old.digest)
	}
}

// needed returns the digests, in hexadecimal, of the images that must stay, and forgets what no source names.
func (x *Images) needed(def *accel.Definition, facts accel.Facts) map[string]bool {
	names := map[string]bool{}
	for _, s := range def.Driver.Sources {
		if s.Type == accel.SourceBuild && s.Image != "" {
			if s, problem := Fill(def, facts, s); problem == nil {
				names[s.ImageName()] = true
			}
		}
	}
	all := x.uses()
	kept := slices.DeleteFunc(slices.Clone(all), func(u use) bool {
		if u.Kernel != facts.Kernel.Release {
			return !x.h.Exists(path.Join("/lib/modules", u.Kernel))
		}
		return u.Kind == def.Kind && !names[u.Name]
	})
	if len(kept) < len(all) {
		if err := x.write(kept); err != nil {
			x.o.Log.Warn("cannot write which builder images are in use", "error", err)
		}
	}
	out := map[string]bool{}
	for _, u := range kept {
		out[hexOf(u.Digest)] = true
	}
	for _, file := range x.h.Glob(x.o.Store.BuildDir(), "*/"+marker) { // a build that has ended is swept with its file
		if text, err := x.h.ReadAttribute(file); err == nil {
			out[text] = true
		}
	}
	return out
}
