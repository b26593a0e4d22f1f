package packages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/driver/unpack"
)

// allRPM is the architecture of packages for every one.
const allRPM = "noarch"

// elementLimit is how many bytes of XML one element of an index may have, with what is before it.
const elementLimit = 4 << 20

// repomd is the top file of an rpm repository: the digests of its indexes (createrepo_c 1.0).
type repomd struct {
	Data []struct {
		Type     string `xml:"type,attr"`
		Checksum checksum
		Location struct {
			Href string `xml:"href,attr"`
			Base string `xml:"base,attr"`
		} `xml:"location"`
		Timestamp float64 `xml:"timestamp"`
		Size      int64   `xml:"size"`
	} `xml:"data"`
}

type checksum struct {
	XMLName xml.Name `xml:"checksum"`
	Type    string   `xml:"type,attr"`
	Value   string   `xml:",chardata"`
}

// digest is the digest that a checksum is; none if it is one that nobody should trust any more.
func (c checksum) digest() transfer.Digest {
	value := strings.TrimSpace(c.Value)
	switch c.Type {
	case "sha256":
		return transfer.SHA256(value)
	case "sha512":
		return transfer.SHA512(value)
	}
	return ""
}

// primary is where the list of packages is.
type primary struct {
	file string
	indexed
	date time.Time
}

// parseRepomd reads a repomd.xml.
func parseRepomd(text []byte) (primary, error) {
	var r repomd
	if err := xml.Unmarshal(text, &r); err != nil {
		return primary{}, err
	}
	var out primary
	found := false
	for _, d := range r.Data {
		if when := time.Unix(int64(d.Timestamp), 0).UTC(); d.Timestamp > 0 && when.After(out.date) {
			out.date = when
		}
		if d.Type != "primary" {
			continue
		}
		found = true
		out.file, out.indexed = strings.TrimPrefix(d.Location.Href, "./"), indexed{d.Checksum.digest(), d.Size}
		if !unpack.Local(out.file) || d.Location.Base != "" || !out.digest.Valid() || d.Size <= 0 {
			return out, errors.New("its list of packages has no usable location, size and SHA-256 or SHA-512")
		}
	}
	if !found {
		return out, errors.New("it has no list of packages")
	}
	return out, nil
}

// listRPM lists the wanted packages of an rpm repository.
func (f *fetch) listRPM(ctx context.Context, u *url.URL) (listing, *accel.Problem) {
	const top = "repodata/repomd.xml"
	text, problem := f.signed(ctx, u, top)
	if problem != nil {
		return listing{}, problem
	}
	var out listing
	signature, problem := f.signed(ctx, u, top+".asc")
	switch {
	case problem == nil:
		key, err := f.keys.check(bytes.NewReader(text), signature)
		if err != nil {
			return listing{}, accel.Problemf(accel.SignatureInvalid, "%s: %v", top, err)
		}
		out.key = key
	case problem.Reason != accel.ArtifactNotFound: // without one, each package must be signed
		return listing{}, problem
	}
	p, err := parseRepomd(text)
	if err != nil {
		return listing{}, accel.Problemf(accel.ArtifactInvalid, "%s cannot be read: %v", top, err)
	}
	if out.key != "" {
		out.date = p.date
		if problem := fresh(p.date, time.Time{}, f.Seen, time.Now()); problem != nil {
			return listing{}, problem
		}
	}
	problem = f.index(ctx, u, p.file, p.indexed, func(in io.Reader) error { return f.readPrimary(in, &out) })
	return out, problem
}

// rpmPackage is a package in the list of packages.
type rpmPackage struct {
	Type    string `xml:"type,attr"`
	Name    string `xml:"name"`
	Arch    string `xml:"arch"`
	Version struct {
		Epoch string `xml:"epoch,attr"`
		Ver   string `xml:"ver,attr"`
		Rel   string `xml:"rel,attr"`
	} `xml:"version"`
	Checksum checksum
	Size     struct {
		Package int64 `xml:"package,attr"`
	} `xml:"size"`
	Location struct {
		Href string `xml:"href,attr"`
		Base string `xml:"base,attr"`
	} `xml:"location"`
}

// readPrimary adds the wanted packages of a list.
func (f *fetch) readPrimary(in io.Reader, out *listing) error {
	b := &budget{r: in, left: elementLimit}
	d := xml.NewDecoder(b)
	d.CharsetReader = nil // UTF-8 only
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "package" {
			continue
		}
		b.left = elementLimit
		var p rpmPackage
		if err := d.DecodeElement(&p, &start); err != nil {
			return err
		}
		b.left = elementLimit
		if !slices.ContainsFunc(f.Packages, func(w Wanted) bool { return w.Name == p.Name }) ||
			p.Arch != f.Repository.Architecture && p.Arch != allRPM {
			continue
		}
		c, err := rpmCandidate(p)
		if err != nil {
			return err
		}
		if out.all = append(out.all, c); len(out.all) > listedLimit {
			return fmt.Errorf("it has more than %d of the packages", listedLimit)
		}
	}
}

// rpmCandidate checks a package of a list.
func rpmCandidate(p rpmPackage) (candidate, error) {
	c := candidate{
		name: p.Name, version: evr(p.Version.Epoch, p.Version.Ver, p.Version.Rel), architecture: p.Arch,
		file: strings.TrimPrefix(p.Location.Href, "./"), digest: p.Checksum.digest(), size: p.Size.Package,
	}
	switch {
	case !versionForm.MatchString(c.version):
		return c, fmt.Errorf("package %q has version %.64q", c.name, c.version)
	case c.size <= 0:
		return c, fmt.Errorf("package %q has size %d", c.name, c.size)
	case !c.digest.Valid():
		return c, fmt.Errorf("package %q has neither SHA-256 nor SHA-512", c.name)
	case !unpack.Local(c.file) || len(c.file) > unpack.NameLimit || p.Location.Base != "":
		return c, fmt.Errorf("package %q is in %.64q", c.name, c.file)
	}
	return c, nil
}

// evr joins epoch, version and release as rpm writes them.
func evr(epoch, version, release string) string {
	out := version + "-" + release
	if cmp.Or(epoch, "0") != "0" {
		out = epoch + ":" + out
	}
	return out
}

// budget is a reader with an allowance that its user renews: a decoder keeps what it reads of one element.
type budget struct {
	r    io.Reader
	left int64
}

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("an element is too long")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
