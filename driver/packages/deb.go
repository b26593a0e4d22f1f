package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/driver/unpack"
)

// allDeb is the architecture of packages for every one.
const allDeb = "all"

// listDeb lists the wanted packages of a deb repository.
func (f *fetch) listDeb(ctx context.Context, u *url.URL) (listing, *accel.Problem) {
	top := path.Join("dists", f.Repository.Suite)
	if strings.HasSuffix(f.Repository.Suite, "/") {
		top = path.Clean(strings.TrimPrefix(f.Repository.Suite, "/"))
	}
	text, key, problem := f.release(ctx, u, top)
	if problem != nil {
		return listing{}, problem
	}
	r, err := parseRelease(text)
	if err != nil {
		return listing{}, accel.Problemf(accel.ArtifactInvalid, "its Release file cannot be read: %v", err)
	}
	if why := r.is(f.Repository.Suite); why != "" {
		return listing{}, accel.Problemf(accel.SignatureInvalid, "%s", why)
	}
	if problem := fresh(r.date, r.until, f.Seen, time.Now()); problem != nil {
		return listing{}, problem
	}
	out := listing{seen: seen{r.date, key}}
	dirs := f.dirs(r)
	for _, dir := range dirs {
		name, want, ok := r.index(dir)
		if !ok && path.Base(dir) == "binary-"+allDeb {
			continue
		}
		if !ok {
			return listing{}, accel.Problemf(accel.ArtifactNotFound, "%s has no packages of %q for %q", top, dir,
				f.Repository.Architecture)
		}
		read := func(in io.Reader) error { return f.readPackages(in, &out) }
		problem := &accel.Problem{Reason: accel.ArtifactNotFound}
		if r.byHash { // a repository that is being updated has the old and the new one
			_, value, _ := strings.Cut(string(want.digest), ":")
			problem = f.index(ctx, u, path.Join(top, path.Dir(name), "by-hash/SHA256", value), want, read)
		}
		if problem != nil && problem.Reason == accel.ArtifactNotFound {
			problem = f.index(ctx, u, path.Join(top, name), want, read)
		}
		if problem != nil {
			return listing{}, problem
		}
	}
	return out, nil
}

// dirs lists the directories of the wanted indexes, relative to that of the release.
func (f *fetch) dirs(r release) []string {
	if len(f.Repository.Components) == 0 {
		return []string{""}
	}
	var out []string
	for _, c := range f.Repository.Components {
		out = append(out, c+"/binary-"+f.Repository.Architecture)
		if r.apart {
			out = append(out, c+"/binary-"+allDeb)
		}
	}
	return out
}

// release fetches the Release file of a suite and returns the text that a key has signed.
func (f *fetch) release(ctx context.Context, u *url.URL, top string) (text []byte, key string, problem *accel.Problem) {
	inline, problem := f.signed(ctx, u, path.Join(top, "InRelease"))
	if problem == nil {
		text, key, err := f.keys.clear(inline)
		if err != nil {
			return nil, "", accel.Problemf(accel.SignatureInvalid, "%s: %v", path.Join(top, "InRelease"), err)
		}
		return text, key, nil
	}
	if problem.Reason != accel.ArtifactNotFound {
		return nil, "", problem
	}
	if text, problem = f.signed(ctx, u, path.Join(top, "Release")); problem != nil {
		return nil, "", problem
	}
	signature, problem := f.signed(ctx, u, path.Join(top, "Release.gpg"))
	if problem != nil && problem.Reason == accel.ArtifactNotFound {
		return nil, "", accel.Problemf(accel.SignatureInvalid, "%s is not signed", path.Join(top, "Release"))
	}
	if problem != nil {
		return nil, "", problem
	}
	key, err := f.keys.check(bytes.NewReader(text), signature)
	if err != nil {
		return nil, "", accel.Problemf(accel.SignatureInvalid, "%s: %v", path.Join(top, "Release"), err)
	}
	return text, key, nil
}

// clear returns the text of a clear-signed message, and the key that signed it. Nothing may stand before or after it:
// it would not be signed.
func (k keyring) clear(message []byte) (text []byte, key string, err error) {
	if !bytes.HasPrefix(message, []byte(armored+"SIGNED MESSAGE-----")) {
		return nil, "", errors.New("it is no signed message")
	}
	block, rest := clearsign.Decode(message)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, "", errors.New("it is no signed message, or not only one")
	}
	key, err = k.verify(bytes.NewReader(block.Bytes), block.ArmoredSignature.Body)
	return block.Plaintext, key, err
}

// readPackages adds the wanted packages of an index.
func (f *fetch) readPackages(in io.Reader, out *listing) error {
	return stanzas(in, func(s stanza) error {
		if !slices.ContainsFunc(f.Packages, func(w Wanted) bool { return w.Name == s["package"] }) ||
			s["architecture"] != f.Repository.Architecture && s["architecture"] != allDeb {
			return nil
		}
		c, err := debCandidate(s)
		if err != nil {
			return err
		}
		if out.all = append(out.all, c); len(out.all) > listedLimit {
			return fmt.Errorf("it has more than %d of the packages", listedLimit)
		}
		return nil
	})
}

// debCandidate reads a paragraph of an index.
func debCandidate(s stanza) (candidate, error) {
	size, err := strconv.ParseInt(s["size"], 10, 64)
	c := candidate{
		name: s["package"], version: s["version"], architecture: s["architecture"], size: size,
		file: strings.TrimPrefix(s["filename"], "./"), digest: transfer.SHA256(s["sha256"]),
	}
	switch {
	case !versionForm.MatchString(c.version):
		return c, fmt.Errorf("package %q has version %.64q", c.name, c.version)
	case err != nil || size <= 0:
		return c, fmt.Errorf("package %q has size %.32q", c.name, s["size"])
	case !c.digest.Valid():
		return c, fmt.Errorf("package %q has no SHA-256", c.name)
	case !unpack.Local(c.file) || len(c.file) > unpack.NameLimit:
		return c, fmt.Errorf("package %q is in %.64q", c.name, c.file)
	}
	return c, nil
}
