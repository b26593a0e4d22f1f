package artifact

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/acceld/acceld/accel"
)

// Pulled is an unpacked artifact.
type Pulled struct {
	// Reference is where it came from, with its digest: "registry.example/edu@sha256:…", or the file of a bundle.
	Reference string
	Digest    string
	// Config is the artifact's own. It is empty for an image in a foreign layout, which has none.
	Config Config
}

// Pull finds the artifact that s names for w and unpacks it into dir, which must exist and be empty: modules into dir
// itself, firmware into "firmware" below it. S is a source of type oci with its templates filled in; its registries
// are tried in order, mirrors first. A failed pull may leave files in dir; the caller removes them.
func (c *Client) Pull(ctx context.Context, s accel.Source, w Wanted, dir string) (Pulled, *accel.Problem) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	keys, err := readPublic(c.h, s.Keys)
	if err != nil {
		return Pulled{}, asProblem(err)
	}
	r, err := parseReference(s)
	if err != nil {
		return Pulled{}, asProblem(err)
	}
	var asked []*accel.Problem
	for i, repository := range r.repositories(s.Mirrors) {
		to := path.Join(dir, fmt.Sprint(i))
		if err := c.h.MkdirAll(to, 0o700); err != nil {
			return Pulled{}, writeProblem(err, to)
		}
		out, problem := c.pullFrom(ctx, s, repository, r, w, keys, to)
		if problem == nil {
			return out, c.settle(to, dir)
		}
		problem.Message = repository + ": " + problem.Message
		asked = append(asked, problem)
		if err := c.h.RemoveAll(to); err != nil {
			return Pulled{}, writeProblem(err, to)
		}
		if local := problem.Reason; local == accel.NoSpace || local == accel.ReadOnly || local == accel.InternalError ||
			ctx.Err() != nil {
			break // another registry would not help
		}
	}
	return Pulled{}, worst(asked)
}

// settle moves the unpacked files to the caller's directory.
func (c *Client) settle(from, dir string) *accel.Problem {
	entries, err := c.h.ReadDir(from)
	for _, e := range entries {
		if err == nil {
			err = c.h.Rename(path.Join(from, e.Name()), path.Join(dir, e.Name()))
		}
	}
	if err == nil {
		err = c.h.Remove(from)
	}
	if err != nil {
		return writeProblem(err, dir)
	}
	return nil
}

// worst chooses the reason if all registries of a source failed. A defective artifact outranks a missing one; of the
// reasons for a missing one, RegistryDenied comes first, then RegistryUnreachable. The message contains all of them.
func worst(all []*accel.Problem) *accel.Problem {
	rank := func(r accel.Reason) int {
		switch r {
		case accel.ArtifactNotFound, accel.KernelMismatch, accel.ArchMismatch:
			return 0
		case accel.RegistryUnreachable:
			return 1
		case accel.RegistryDenied:
			return 2
		}
		return 3
	}
	chosen, texts := all[0].Reason, make([]string, len(all))
	for i, p := range all {
		if rank(p.Reason) > rank(chosen) {
			chosen = p.Reason
		}
		texts[i] = p.Message
	}
	return accel.Problemf(chosen, "%s", strings.Join(texts, "; "))
}

// pullFrom is Pull from one repository.
func (c *Client) pullFrom(ctx context.Context, s accel.Source, repository string, r reference, w Wanted,
	keys []crypto.PublicKey, dir string,
) (Pulled, *accel.Problem) {
	from, err := dial(ctx, c.h, s, repository, c.o.Stall, c.o.Limits)
	if err != nil {
		return Pulled{}, asProblem(err)
	}
	defer from.close()
	return c.pullPlace(ctx, from, repository, r.refs(w), r.digest != "", w, keys, dir)
}

// pullPlace takes the first of refs that matches this machine.
func (c *Client) pullPlace(ctx context.Context, from place, where string, refs []string, pinned bool, w Wanted,
	keys []crypto.PublicKey, dir string,
) (Pulled, *accel.Problem) {
	var texts []string
	for _, ref := range refs {
		var out Pulled
		t := c.begin(accel.StagePull, named(where, ref))
		err := c.try(ctx, t, func() error {
			err := c.empty(dir)
			if err == nil {
				out, err = c.take(ctx, t, from, where, ref, w, keys, dir)
			}
			return err
		})
		t.end(err)
		if err == nil {
			return out, nil
		}
		p := explain(err)
		switch {
		case !pinned && (p.Reason == accel.KernelMismatch || p.Reason == accel.ArchMismatch):
			p.Reason = accel.ArtifactNotFound // a tag is only an index: somebody may still push what is needed
		case p.Reason == accel.RegistryUnreachable && errors.Is(ctx.Err(), context.DeadlineExceeded):
			p.Message = fmt.Sprintf("did not deliver within %v", c.o.Timeout)
		}
		if p.Reason != accel.ArtifactNotFound {
			return Pulled{}, accel.Problemf(p.Reason, "%s %s", ref, p.Message)
		}
		texts = append(texts, ref+" "+p.Message)
	}
	if len(texts) == 0 {
		texts = []string{"nothing is in it"}
	}
	return Pulled{}, accel.Problemf(accel.ArtifactNotFound, "%s", strings.Join(texts, ", "))
}

// named returns the full name of a tag or a digest.
func named(where, ref string) string {
	if strings.HasPrefix(ref, "sha256:") {
		return where + "@" + ref
	}
	return where + ":" + ref
}

// empty empties dir for another attempt.
func (c *Client) empty(dir string) error {
	entries, err := c.h.ReadDir(dir)
	if err != nil {
		return writeProblem(err, dir)
	}
	for _, e := range entries {
		if err := c.h.RemoveAll(path.Join(dir, e.Name())); err != nil {
			return writeProblem(err, dir)
		}
	}
	return nil
}

// take checks and unpacks what a place has under a tag or a digest.
func (c *Client) take(ctx context.Context, t *transfer, from place, where, ref string, w Wanted,
	keys []crypto.PublicKey, dir string,
) (Pulled, error) {
	top, err := from.manifest(ctx, ref)
	if err != nil {
		return Pulled{}, err
	}
	img, m, err := image(ctx, from, top, accel.GoArch(w.Arch))
	if err != nil {
		return Pulled{}, err
	}
	out := Pulled{Reference: where + "@" + m.digest.String(), Digest: m.digest.String()}
	native := img.ArtifactType == ArtifactType || string(img.Config.MediaType) == ConfigType
	if native { // before the signature: an artifact for another kernel needs none
		if out.Config, err = c.config(ctx, from, img); err != nil {
			return out, err
		}
		if p := w.mismatch(out.Config); p != nil {
			return out, p
		}
	}
	if len(keys) > 0 {
		err := authentic(ctx, from, m.digest, keys, c.o.Limits)
		if err != nil && top.digest != m.digest {
			err = authentic(ctx, from, top.digest, keys, c.o.Limits) // an index may be signed as a whole
		}
		if err != nil {
			return out, err
		}
	}
	if c.o.Known != nil && c.o.Known(out) {
		return out, nil
	}
	total, err := c.bounded(img)
	if err != nil {
		return out, err
	}
	t.size(out.Reference, total)
	x := newExtraction(c.h, dir, c.o.Limits)
	if native {
		return out, c.each(ctx, t, from, img.Layers, func(r io.Reader) error { return x.native(r, out.Config) })
	}
	f := &foreign{x: x, modules: "opt/lib/modules/" + w.KernelRelease + "/", files: map[string]string{}}
	if err := c.each(ctx, t, from, img.Layers, func(r io.Reader) error { return f.layer(r) }); err != nil {
		return out, err
	}
	return out, f.finish()
}

// config reads the configuration of an artifact.
func (c *Client) config(ctx context.Context, from place, img v1.Manifest) (Config, error) {
	if len(img.Layers) != 1 || string(img.Layers[0].MediaType) != LayerType ||
		string(img.Config.MediaType) != ConfigType {
		return Config{}, invalidf("its manifest does not have one layer of type %s", LayerType)
	}
	text, err := readBlob(ctx, from, img.Config, c.o.Limits.Manifest)
	if err != nil {
		return Config{}, err
	}
	config, err := parseConfig(text)
	if err != nil {
		return Config{}, invalidf("%v", err)
	}
	return config, nil
}

// bounded refuses an image that is too large, before any layer is fetched. It returns the total size of the layers.
func (c *Client) bounded(img v1.Manifest) (total int64, err error) {
	for _, l := range img.Layers {
		if l.Size < 0 || l.Size > c.o.Limits.Packed {
			return 0, invalidf("its layer %s says that it has %d bytes", l.Digest, l.Size)
		}
		total += l.Size
	}
	if total > c.o.Limits.Packed || len(img.Layers) > c.o.Limits.Layers {
		return 0, invalidf("it has %d layers with %d bytes, allowed are %d with %d", len(img.Layers), total,
			c.o.Limits.Layers, c.o.Limits.Packed)
	}
	return total, nil
}

// each calls do for every layer, in order.
func (c *Client) each(ctx context.Context, t *transfer, from place, layers []v1.Descriptor,
	do func(io.Reader) error,
) error {
	for _, l := range layers {
		r, err := open(ctx, from, l, c.o.Limits.Packed)
		if err != nil {
			return err
		}
		err = do(t.reader(r))
		_ = r.Close() // it was read to the end, or failed
		if err != nil {
			return err
		}
		t.part(l.Size)
	}
	return nil
}

// reference is the image name of a source, in parts.
type reference struct {
	server, repository string
	tag, digest        string // either may be empty
}

func parseReference(s accel.Source) (reference, error) {
	text, digest, _ := strings.Cut(s.Image, "@")
	if s.Digest != "" {
		digest = s.Digest
	}
	repository, tag := text, ""
	if i := strings.LastIndexByte(text, ':'); i > strings.LastIndexByte(text, '/') {
		repository, tag = text[:i], text[i+1:]
	}
	server, rest, ok := strings.Cut(repository, "/")
	if !ok || !strings.ContainsAny(server, ".:") && server != "localhost" {
		return reference{}, accel.Problemf(accel.ConfigInvalid, "the image %q names no registry", s.Image)
	}
	r := reference{server: server, repository: rest, tag: tag, digest: digest}
	if digest != "" {
		if h, err := v1.NewHash(digest); err != nil || h.Algorithm != "sha256" {
			return r, accel.Problemf(accel.ConfigInvalid, "the digest %q is not sha256 and 64 hexadecimal digits",
				digest)
		}
	}
	if tag != "" {
		if _, err := name.NewTag(text); err != nil {
			return r, accel.Problemf(accel.ConfigInvalid, "the image %q cannot be one: %v", s.Image, err)
		}
	}
	return r, nil
}

// repositories lists where the image may be, in the order to try.
func (r reference) repositories(mirrors []string) []string {
	var out []string
	for _, m := range mirrors {
		out = append(out, strings.TrimSuffix(m, "/")+"/"+r.repository)
	}
	return append(out, r.server+"/"+r.repository)
}

// refs lists the digest or the tags to look up.
func (r reference) refs(w Wanted) []string {
	switch {
	case r.digest != "":
		return []string{r.digest}
	case r.tag != "":
		return []string{r.tag}
	}
	return w.Tags()
}
