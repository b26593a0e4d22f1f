package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/driver/trust"
	"github.com/acceld/acceld/driver/unpack"
)

// Pulled is an unpacked artifact.
type Pulled struct {
	// Reference is where it came from, with its digest: "registry.example/edu@sha256:…", or the file of a bundle.
	Reference string
	Digest    string
	// Config is the artifact's own. It is empty for an image in a foreign layout, which has none.
	Config Config
	// Signers are those who signed it, of the keys of the source and those whom the host trusts.
	Signers []trust.Signer
}

// Pull finds the artifact that s names for w and unpacks it into dir, which must exist and be empty: modules into dir
// itself, firmware into "firmware" below it, and a user space into "root". S is a source of type oci with its templates
// filled in; its registries are tried in order, mirrors first. A failed pull leaves dir empty.
func (c *Client) Pull(ctx context.Context, s accel.Source, w Wanted, dir string) (Pulled, *accel.Problem) {
	return c.find(ctx, s, w, dir, false)
}

// find pulls what s names from the first registry that has it: an artifact, or the image of a whole system.
func (c *Client) find(ctx context.Context, s accel.Source, w Wanted, dir string, whole bool) (Pulled, *accel.Problem) {
	r, err := parseReference(s)
	if err != nil {
		return Pulled{}, explain(err)
	}
	p, problem := c.pull(s, w, dir)
	if problem != nil {
		return Pulled{}, problem
	}
	p.pinned, p.whole = r.digest != "", whole
	var out Pulled
	problem = each(ctx, r.repositories(s.Mirrors), func(repository string, left int) (problem *accel.Problem) {
		ctx, stop := p.time.share(ctx, left)
		defer stop()
		out, problem = p.registry(ctx, s, repository, r.refs(w))
		return problem
	})
	return out, problem
}

// each calls do with the repositories, and how many are left with this one, until it succeeds or another registry would
// not help. The problem is the worst one.
func each(ctx context.Context, all []string, do func(repository string, left int) *accel.Problem) *accel.Problem {
	var asked []*accel.Problem
	for i, repository := range all {
		problem := do(repository, len(all)-i)
		if problem == nil {
			return nil
		}
		problem.Message = repository + ": " + problem.Message
		asked = append(asked, problem)
		if local := problem.Reason; local == accel.NoSpace || local == accel.ReadOnly || local == accel.InternalError ||
			ctx.Err() != nil {
			break
		}
	}
	return transfer.Worst(asked)
}

// pull is one pull in progress.
type pull struct {
	*Client
	wanted Wanted
	keys   trust.Anchors // of the source, one of which must have signed; if there are none, it needs no signature
	host   trust.Anchors // whom the host trusts
	pinned bool          // to a digest
	whole  bool          // the image of a whole system is wanted, not an artifact
	time   *allowance
	dir    string
}

func (c *Client) pull(s accel.Source, w Wanted, dir string) (pull, *accel.Problem) {
	p := pull{Client: c, wanted: w, dir: dir, time: &allowance{left: c.o.Timeout}}
	var problem *accel.Problem
	if p.keys, problem = trust.Read(c.h, accel.Trust{Keys: s.Keys}); problem == nil {
		p.host, problem = trust.Read(c.h, c.o.Trust)
	}
	return p, problem
}

// lacks says by whom a signature is demanded that is not among those of the signers; empty if none is.
func (p pull) lacks(signers []trust.Signer) string {
	switch {
	case !p.keys.Empty() && !p.keys.Has(signers):
		return "by one of the wanted keys"
	case p.o.Trust.Require && !p.host.Has(signers):
		return "by a key or an identity that this host trusts (trust.require)"
	}
	return ""
}

// signed finds out who signed the manifests with the digests, each of which may be signed for the artifact. A missing
// signature that is demanded is a SignatureInvalid. If none is demanded, a place that has trouble with signatures is no
// problem.
func (p pull) signed(ctx context.Context, from place, digests ...v1.Hash) ([]trust.Signer, error) {
	s := &signatures{from: from, anchors: p.keys.With(p.host), limits: p.o.Limits}
	if s.anchors.Empty() {
		return nil, nil
	}
	enough := func() bool { return len(s.signers) > 0 && p.lacks(s.signers) == "" }
	var err error
	for _, d := range slices.Compact(digests) {
		if err == nil && !enough() {
			err = s.find(ctx, d, enough)
		}
	}
	lacks := p.lacks(s.signers)
	switch {
	case lacks == "":
		return s.signers, nil
	case err != nil:
		return nil, err
	case s.seen == 0:
		return nil, accel.Problemf(accel.SignatureInvalid, "%s is not signed", digests[0])
	}
	return nil, accel.Problemf(accel.SignatureInvalid, "no signature of %s is %s (%d looked at)", digests[0],
		lacks, s.seen)
}

// registry pulls from one repository.
func (p pull) registry(ctx context.Context, s accel.Source, repository string, refs []string) (Pulled,
	*accel.Problem,
) {
	from, err := dial(ctx, p.h, s, repository, p.o.Stall, p.o.Limits)
	if err != nil {
		return Pulled{}, explain(err)
	}
	defer from.close()
	return p.place(ctx, from, repository, refs)
}

// place takes the first of refs that matches this machine.
func (p pull) place(ctx context.Context, from place, where string, refs []string) (Pulled, *accel.Problem) {
	var texts []string
	for _, ref := range refs {
		var out Pulled
		t := p.begin(accel.StagePull, named(where, ref))
		err := p.try(ctx, t, func() error {
			var err error
			if out, err = p.take(ctx, t, from, where, ref); err == nil {
				return nil
			}
			// Nothing may stay of an attempt that failed, least of all of a mirror.
			if failed := errors.Join(p.h.RemoveAll(p.dir), p.h.MkdirAll(p.dir, 0o700)); failed != nil {
				return unpack.WriteProblem(failed, p.dir)
			}
			return err
		})
		end(t, err)
		if err == nil {
			return out, nil
		}
		problem := explain(err)
		switch reason := problem.Reason; {
		case !p.pinned && (reason == accel.KernelMismatch || reason == accel.ArchMismatch):
			problem.Reason = accel.ArtifactNotFound // a tag is only an index: somebody may still push what is needed
		case reason == accel.RegistryUnreachable && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
			problem.Message = fmt.Sprintf("did not deliver within %v", p.time.shared.Round(10*time.Millisecond))
		}
		if !isDigest(ref) || !strings.Contains(problem.Message, ref) { // a message about a signature names the digest
			problem.Message = ref + " " + problem.Message
		}
		if problem.Reason != accel.ArtifactNotFound {
			return Pulled{}, problem
		}
		texts = append(texts, problem.Message)
	}
	if len(texts) == 0 {
		texts = []string{"nothing is in it"}
	}
	return Pulled{}, accel.Problemf(accel.ArtifactNotFound, "%s", strings.Join(texts, ", "))
}

// isDigest tells a digest from a tag, which has no colon.
func isDigest(ref string) bool { return strings.HasPrefix(ref, "sha256:") }

// named returns the full name of a tag or a digest.
func named(where, ref string) string {
	if isDigest(ref) {
		return where + "@" + ref
	}
	return where + ":" + ref
}

// take checks and unpacks what a place has under a tag or a digest.
func (p pull) take(ctx context.Context, t *transfer.Meter, from place, where, ref string) (Pulled, error) {
	top, err := from.manifest(ctx, ref)
	if err != nil {
		return Pulled{}, err
	}
	img, m, err := image(ctx, from, top, accel.GoArch(p.wanted.Arch))
	if err != nil {
		return Pulled{}, err
	}
	out := Pulled{Reference: where + "@" + m.digest.String(), Digest: m.digest.String()}
	native := !p.whole && (img.ArtifactType == ArtifactType || string(img.Config.MediaType) == ConfigType)
	if p.whole {
		if err := p.machine(ctx, from, img); err != nil {
			return out, err
		}
	}
	if native { // before the signature: an artifact for another kernel needs none
		if out.Config, err = p.config(ctx, from, img); err != nil {
			return out, err
		}
		if problem := p.wanted.mismatch(out.Config); problem != nil {
			return out, problem
		}
		if p.wanted.Root != nil && p.wanted.Root.Alone && len(out.Config.UserSpace) == 0 {
			return out, accel.Problemf(accel.ArtifactNotFound, "is an artifact of modules only")
		}
	}
	if out.Signers, err = p.signed(ctx, from, m.digest, top.digest); err != nil { // an index may be signed as a whole
		return out, err
	}
	if p.o.Known != nil && p.o.Known(out) {
		return out, nil
	}
	total, err := p.bounded(img)
	if err != nil {
		return out, err
	}
	t.Size(out.Reference, total)
	if p.whole {
		return out, p.root(ctx, t, from, img)
	}
	x := newExtraction(ctx, p.h, p.dir, p.o.Limits)
	if native {
		return out, p.each(ctx, t, from, img.Layers, func(r io.ReadSeeker) error { return x.native(r, out.Config) })
	}
	f := newForeign(x, p.wanted)
	if err := p.each(ctx, t, from, img.Layers, func(r io.ReadSeeker) error { return f.layer(r) }); err != nil {
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
func (p pull) each(ctx context.Context, t *transfer.Meter, from place, layers []v1.Descriptor,
	do func(io.ReadSeeker) error,
) error {
	for _, l := range layers {
		if err := p.layer(ctx, t, from, l, do); err != nil {
			return err
		}
		t.Part(l.Size)
	}
	return nil
}

// layer fetches one layer into a file without a name, and calls do with it once its digest is verified: nothing is
// unpacked of what somebody else sent.
func (p pull) layer(ctx context.Context, t *transfer.Meter, from place, l v1.Descriptor,
	do func(io.ReadSeeker) error,
) error {
	r, err := open(ctx, from, l, p.o.Limits.Packed)
	if err != nil {
		return err
	}
	defer r.Close()
	name := path.Join(p.dir, ".layer")
	f, err := p.h.Create(name, 0o600)
	if err != nil {
		return unpack.WriteProblem(err, name)
	}
	defer f.Close()
	w := &unpack.Writing{W: f}
	w.Err = p.h.Remove(name)
	if w.Err == nil {
		_, err = io.Copy(w, t.Reader(r))
	}
	if w.Err == nil && err == nil {
		_, w.Err = f.Seek(0, io.SeekStart)
	}
	if w.Err != nil {
		return unpack.WriteProblem(w.Err, name)
	}
	if err != nil {
		return err
	}
	return p.time.pause(func() error { return do(f) })
}

// reference is the image name of a source, in parts.
type reference struct {
	server, repository string
	tag, digest        string // either may be empty
}

func parseReference(s accel.Source) (reference, error) {
	text, digest, _ := strings.Cut(s.Image, "@")
	digest = cmp.Or(s.Digest, digest)
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
