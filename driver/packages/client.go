package packages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/driver/unpack"
	"github.com/acceld/acceld/host"
)

// Options of a [Client]. The zero value of each field is usable.
type Options struct {
	// Progress receives progress reports, a few times a second, from several goroutines. It must return quickly. The
	// kind is empty, because only the caller knows it. Nil discards the reports.
	Progress func(accel.Progress)
	// Known reports whether the caller already has what these packages hold, by what is known before they are fetched.
	// They then stay where they are, and the tree is empty. Nil fetches every package. Their SHA-256 is empty where the
	// repository has another digest.
	Known func([]Package) bool
	// Trust is the host's policy on signatures.
	Trust accel.Trust
	// Backoff is the wait, with jitter, before the second attempt at a server. The wait before the third and last
	// attempt is three times as long. 1 s when zero.
	Backoff time.Duration
	// Stall is how long a transfer may make no progress, which is less than 64 KiB; 30 s when zero.
	Stall time.Duration
	// Timeout bounds one request; 30 min when zero.
	Timeout time.Duration
}

// Client gets packages. It is safe for concurrent use.
type Client struct {
	h *host.Host
	o Options
}

// New returns a client that reads keys, certificates and directories from h, and writes to it.
func New(h *host.Host, o Options) *Client {
	if o.Progress == nil {
		o.Progress = func(accel.Progress) {}
	}
	o.Backoff = cmp.Or(o.Backoff, time.Second)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Minute)
	return &Client{h: h, o: o}
}

// The limits of what a repository may make this host fetch, in bytes. The largest known index is that of all of
// Fedora: 25 MB, 200 MB unpacked.
const (
	signedLimit   = 16 << 20  // InRelease, Release, repomd.xml and their signatures
	indexLimit    = 256 << 20 // an index, compressed
	unpackedLimit = 1 << 30   // an index, uncompressed
	packedLimit   = 2 << 30   // all packages of a request
	listedLimit   = 10_000    // candidates for the packages of a request
)

// Fetch gets the packages of a request and unpacks them into its directory. A failed request leaves the directory
// empty, and what it downloaded in the cache.
func (c *Client) Fetch(ctx context.Context, r Request) (Fetched, *accel.Problem) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	f, problem := c.begin(r)
	if problem != nil {
		return Fetched{}, problem
	}
	out, problem := f.run(ctx)
	if problem == nil {
		return out, nil
	}
	if err := errors.Join(c.h.RemoveAll(r.Dir), c.h.MkdirAll(r.Dir, 0o700)); err != nil {
		return Fetched{}, accel.ProblemOf(err, "cannot empty %q", r.Dir)
	}
	return Fetched{}, problem
}

// Versions returns, newest first, the versions that each package of a request has in the repository, without epochs and
// revisions. It fetches no package.
func (c *Client) Versions(ctx context.Context, r Request) (versions []string, problem *accel.Problem) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	f, problem := c.begin(r)
	if problem != nil {
		return nil, problem
	}
	if f.Repository.Path != "" {
		all, problem := f.scan(ctx)
		return inAll(f.Repository.Format, all, f.Packages), problem
	}
	problem = f.visit(ctx, func(u *url.URL) *accel.Problem {
		have, problem := f.list(ctx, u)
		versions = inAll(f.Repository.Format, have.all, f.Packages)
		return problem
	})
	return versions, problem
}

// begin checks a request and reads its keys.
func (c *Client) begin(r Request) (*fetch, *accel.Problem) {
	if problem := r.problem(); problem != nil {
		return nil, problem
	}
	var problem *accel.Problem
	if r.Repository, problem = c.located(r.Repository); problem != nil {
		return nil, problem
	}
	r.Bounds = cmp.Or(r.Bounds, unpack.Usual())
	keys, problem := readKeys(c.h, r.Repository.Keys)
	if problem != nil {
		return nil, problem
	}
	return &fetch{Client: c, Request: r, keys: keys}, nil
}

// fetch is a request in progress.
type fetch struct {
	*Client
	Request
	keys keyring
	tr   *transfer.Transport
	http *transfer.Client
	// reached is how many bytes were received.
	received int64
}

// run gets the packages from the directory, or from the first place that has them.
func (f *fetch) run(ctx context.Context) (out Fetched, problem *accel.Problem) {
	if f.Repository.Path != "" {
		return f.fromPath(ctx)
	}
	problem = f.visit(ctx, func(u *url.URL) (problem *accel.Problem) {
		out, problem = f.fromURL(ctx, u)
		return problem
	})
	return out, problem
}

// visit calls do with the places of the repository until it succeeds.
func (f *fetch) visit(ctx context.Context, do func(*url.URL) *accel.Problem) *accel.Problem {
	var problem *accel.Problem
	f.tr, problem = transfer.Open(f.h, transfer.Access{
		CA: f.Repository.CA, Proxy: f.Repository.Proxy, Plain: true, Stall: f.o.Stall,
	})
	if problem != nil {
		return problem
	}
	defer f.tr.Close()
	f.http = f.tr.Client(f.h, f.o.Backoff)
	if err := f.h.MkdirAll(f.Cache, 0o700); err != nil {
		return accel.ProblemOf(err, "cannot create the cache")
	}
	var tried []*accel.Problem
	places := f.Repository.places()
	for _, list := range f.Repository.lists {
		mirrors, problem := f.listed(ctx, list)
		if problem != nil {
			tried = append(tried, problem)
		}
		places = append(places, mirrors...)
	}
	for _, place := range places {
		u, _ := base(place) // was checked
		problem := do(u)
		if problem == nil {
			return nil
		}
		problem.Message = at(u, "") + ": " + problem.Message
		tried = append(tried, problem)
		switch problem.Reason {
		case accel.NoSpace, accel.ReadOnly, accel.PermissionDenied, accel.InternalError, accel.ConfigInvalid:
			return transfer.Worst(tried) // another place would not help
		}
		if ctx.Err() != nil {
			break
		}
	}
	return transfer.Worst(tried)
}

// list reads what a URL lists of the wanted packages.
func (f *fetch) list(ctx context.Context, u *url.URL) (listing, *accel.Problem) {
	if f.Repository.Format == RPM {
		return f.listRPM(ctx, u)
	}
	return f.listDeb(ctx, u)
}

// seen is when a repository was signed, and by which key; a listing that nobody signed has neither.
type seen struct {
	date time.Time
	key  string
}

// fromURL gets the packages from one URL.
func (f *fetch) fromURL(ctx context.Context, u *url.URL) (Fetched, *accel.Problem) {
	have, problem := f.list(ctx, u)
	if problem != nil {
		return Fetched{}, problem
	}
	chosen, problem := choose(f.Repository.Format, have.all, f.Packages)
	if problem != nil {
		return Fetched{}, problem
	}
	out := Fetched{Date: have.date}
	var total int64
	for _, c := range chosen {
		value, _ := strings.CutPrefix(string(c.digest), "sha256:")
		if value == string(c.digest) {
			value = ""
		}
		out.Packages = append(out.Packages, Package{
			Name: c.name, Version: c.version, Architecture: c.architecture, From: at(u, c.file), SHA256: value,
			Bytes: c.size, Key: have.key,
		})
		total += c.size
	}
	if total > packedLimit {
		return Fetched{}, accel.Problemf(accel.ArtifactInvalid, "the packages have %d bytes, allowed are %d", total,
			packedLimit)
	}
	if f.o.Known != nil && f.o.Known(out.Packages) {
		return out, nil
	}
	files := make([]string, len(chosen))
	m := transfer.Begin(f.o.Progress, accel.StagePull, at(u, ""))
	m.Size("", total)
	for i, c := range chosen {
		file, problem := f.file(ctx, u, c.file, indexed{c.digest, c.size}, m)
		if problem != nil {
			problem.Message = fmt.Sprintf("package %q %s: %s", c.name, c.version, problem.Message)
			m.End(problem.Message)
			return Fetched{}, problem
		}
		files[i], out.Packages[i].SHA256 = file.Path, file.SHA256
	}
	m.End("")
	out.Received = f.received
	out.Tree, problem = f.unpack(ctx, files, out.Packages, have.key != "")
	return out, problem
}

// signed fetches a file that a signature covers, or a signature.
func (f *fetch) signed(ctx context.Context, u *url.URL, file string) ([]byte, *accel.Problem) {
	text, err := f.http.Get(ctx, at(u, file), signedLimit)
	if err != nil {
		p := transfer.Explain(err)
		return nil, accel.Problemf(p.Reason, "%s: %s", file, p.Message)
	}
	return text, nil
}

// file fetches a file whose digest is known.
func (f *fetch) file(ctx context.Context, u *url.URL, file string, want indexed, m *transfer.Meter) (transfer.File,
	*accel.Problem,
) {
	got, err := f.http.Fetch(ctx, f.Cache, transfer.Wanted{
		URL: at(u, file), Digest: want.digest, Size: want.size,
	}, m)
	if err != nil {
		p := transfer.Explain(err)
		return got, accel.Problemf(p.Reason, "%s: %s", file, p.Message)
	}
	if !got.Cached {
		f.received += got.Size
	}
	return got, nil
}

// index fetches an index and reads it.
func (f *fetch) index(ctx context.Context, u *url.URL, file string, want indexed, read func(io.Reader) error,
) *accel.Problem {
	if want.size > indexLimit {
		return accel.Problemf(accel.ArtifactInvalid, "%s has %d bytes, allowed are %d", file, want.size, indexLimit)
	}
	m := transfer.Begin(f.o.Progress, accel.StagePull, at(u, file))
	m.Size("", want.size)
	before := f.received
	got, problem := f.file(ctx, u, file, want, m)
	f.received = before // only packages count
	if problem != nil {
		m.End(problem.Message)
		return problem
	}
	m.End("")
	in, err := f.h.Open(got.Path)
	if err != nil {
		return accel.ProblemOf(err, "cannot read an index")
	}
	defer in.Close()
	content, closed, err := unpack.Decompress(in)
	defer closed()
	if err == nil {
		err = read(ending{unpack.Limit(content, unpackedLimit), ctx.Err})
	}
	if err != nil && ctx.Err() == nil {
		return accel.ProblemOr(err, accel.ArtifactInvalid, "%s cannot be read", file)
	}
	if err != nil {
		return accel.Problemf(accel.RegistryUnreachable, "reading %s was called off: %v", file, ctx.Err())
	}
	return nil
}

// ending fails once the work was called off.
type ending struct {
	r     io.Reader
	ended func() error
}

func (e ending) Read(p []byte) (int, error) {
	if err := e.ended(); err != nil {
		return 0, err
	}
	return e.r.Read(p)
}

// unpack verifies packages that are on the host, if they must still be, and unpacks them. Listed says that a signed
// repository has their digests.
func (f *fetch) unpack(ctx context.Context, files []string, packages []Package, listed bool) (unpack.Tree,
	*accel.Problem,
) {
	if f.Repository.Format == RPM {
		for i, name := range files {
			key, problem := f.checkRPM(name, packages[i], listed)
			if problem != nil {
				return unpack.Tree{}, problem
			}
			packages[i].Key = cmp.Or(key, packages[i].Key)
		}
	}
	x := unpack.New(ctx, f.h, f.Dir, f.Bounds)
	for i, name := range files {
		if problem := f.add(x, name); problem != nil {
			problem.Message = fmt.Sprintf("package %q: %s", packages[i].Name, problem.Message)
			return unpack.Tree{}, problem
		}
	}
	return x.Finish()
}

// add unpacks one package.
func (f *fetch) add(x *unpack.Extraction, name string) *accel.Problem {
	in, err := f.h.Open(name)
	if err != nil {
		return accel.ProblemOf(err, "cannot read it")
	}
	defer in.Close()
	if f.Repository.Format == Deb {
		return x.Add(in, unpack.DEB)
	}
	if _, err := readRPM(in); err != nil { // what follows is the payload
		return accel.ProblemOr(err, accel.ArtifactInvalid, "it cannot be read")
	}
	return x.Add(in, unpack.CPIO)
}
