package transfer

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Digest is an algorithm and a value, "sha256:" and 64 hexadecimal digits or "sha512:" and 128.
type Digest string

// SHA256 returns the digest with the hexadecimal value.
func SHA256(value string) Digest { return Digest("sha256:" + strings.ToLower(value)) }

// SHA512 returns the digest with the hexadecimal value.
func SHA512(value string) Digest { return Digest("sha512:" + strings.ToLower(value)) }

// Valid reports whether d has one of the two forms.
func (d Digest) Valid() bool {
	algorithm, value, _ := strings.Cut(string(d), ":")
	length := map[string]int{"sha256": sha256.Size, "sha512": sha512.Size}[algorithm]
	raw, err := hex.DecodeString(value)
	return err == nil && length > 0 && len(raw) == length && value == strings.ToLower(value)
}

// Wanted is a file to fetch.
type Wanted struct {
	URL    string
	Digest Digest
	Size   int64 // in bytes
}

// File is a fetched file, whose digest was verified.
type File struct {
	Path   string // on the host
	SHA256 string // in hexadecimal
	Size   int64
	Cached bool // nothing was sent for it
}

// sums are the digests of what is written.
type sums struct{ a, b hash.Hash }

func newSums() sums { return sums{sha256.New(), sha512.New()} }

func (s sums) Write(p []byte) (int, error) {
	_, _ = s.a.Write(p) // neither ever fails
	return s.b.Write(p)
}

func (s sums) is(d Digest) bool {
	return d == SHA256(s.sha256()) || d == SHA512(hex.EncodeToString(s.b.Sum(nil)))
}

func (s sums) sha256() string { return hex.EncodeToString(s.a.Sum(nil)) }

// Fetch returns the file with the digest from the directory dir, or fetches it into it. What was received of it before
// a failure, or before the process ended, is not fetched again. The caller begins and ends the meter; a file that was
// there counts as received.
func (c *Client) Fetch(ctx context.Context, dir string, w Wanted, m *Meter) (File, error) {
	if !w.Digest.Valid() || w.Size < 0 {
		return File{}, accel.Problemf(accel.ArtifactInvalid, "%q with %d bytes is no digest of a file", w.Digest,
			w.Size)
	}
	name := path.Join(dir, strings.Replace(string(w.Digest), ":", "-", 1))
	if f, err := c.Check(name, w.Digest); err == nil {
		m.Part(f.Size)
		f.Cached = true
		return f, nil
	}
	if err := c.h.Remove(name); err != nil {
		return File{}, accel.ProblemOf(err, "cannot remove a damaged file")
	}
	r, err := c.begin(name+".part", w)
	if err != nil {
		return File{}, accel.ProblemOf(err, "cannot write %q", name)
	}
	defer r.f.Close()
	again := func(n int, err error) { m.Resume(n, Explain(err).Message) }
	err = Try(ctx, c.pause, retry, again, func() error { return r.receive(ctx, c, m) })
	if err == nil {
		err = errors.Join(r.f.Sync(), c.h.Rename(name+".part", name))
		if err != nil {
			err = accel.ProblemOf(err, "cannot keep %q", name)
		}
	}
	if err != nil {
		if Explain(err).Reason == accel.DigestMismatch {
			_ = c.h.Remove(name + ".part") // the error that counts is the other one
		}
		return File{}, err
	}
	m.Part(w.Size)
	return File{Path: name, SHA256: r.sums.sha256(), Size: r.n}, nil
}

// Check returns a file of the host if it has the digest.
func (c *Client) Check(name string, d Digest) (File, error) {
	s, n, err := sum(c.h, name)
	if err != nil {
		return File{}, err
	}
	if !s.is(d) {
		return File{}, accel.Problemf(accel.DigestMismatch, "%q has SHA-256 %s, wanted is %s", name, s.sha256(), d)
	}
	return File{Path: name, SHA256: s.sha256(), Size: n}, nil
}

// Sum returns the SHA-256 and the size of a file of the host.
func Sum(h *host.Host, name string) (Digest, int64, error) {
	s, n, err := sum(h, name)
	return SHA256(s.sha256()), n, err
}

func sum(h *host.Host, name string) (sums, int64, error) {
	s := newSums()
	f, err := h.Open(name)
	if err != nil {
		return s, 0, err
	}
	defer f.Close()
	n, err := io.Copy(s, f)
	return s, n, err
}

// receiving is a file in progress.
type receiving struct {
	w       Wanted
	f       *os.File
	n       int64 // bytes in the file
	sums    sums
	resumed bool // some of them are of an earlier process or attempt
}

// begin creates the file for what comes, with what an earlier process left of it.
func (c *Client) begin(name string, w Wanted) (*receiving, error) {
	r := &receiving{w: w, sums: newSums()}
	old := name + ".old"
	if c.h.Exists(name) {
		if err := c.h.Rename(name, old); err != nil {
			return nil, err
		}
	}
	var err error
	if r.f, err = c.h.Create(name, 0o600); err != nil {
		return nil, err
	}
	if before, err := c.h.Open(old); err == nil {
		r.n, err = io.Copy(io.MultiWriter(r.f, r.sums), io.LimitReader(before, w.Size))
		r.resumed = r.n > 0
		if err = errors.Join(err, before.Close(), c.h.Remove(old)); err != nil {
			return nil, errors.Join(err, r.f.Close())
		}
	}
	return r, nil
}

// restart forgets what is in the file.
func (r *receiving) restart() error {
	r.n, r.sums, r.resumed = 0, newSums(), false
	_, err := r.f.Seek(0, io.SeekStart)
	return errors.Join(r.f.Truncate(0), err)
}

// receive asks for what is missing and writes it.
func (r *receiving) receive(ctx context.Context, c *Client, m *Meter) error {
	if r.n < r.w.Size || r.n == 0 {
		answer, err := c.ask(ctx, r.w.URL, r.n)
		var status *StatusError
		if errors.As(err, &status) && status.Code == http.StatusRequestedRangeNotSatisfiable {
			return errors.Join(r.restart(), err)
		}
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		start := fmt.Sprintf("bytes %d-", r.n)
		if r.n > 0 && !strings.HasPrefix(answer.Header.Get("Content-Range"), start) { // the whole file
			if answer.StatusCode == http.StatusPartialContent {
				return errors.Join(r.restart(), &StatusError{http.StatusRequestedRangeNotSatisfiable})
			}
			if err := r.restart(); err != nil {
				return err
			}
		}
		if all := answer.ContentLength + r.n; answer.ContentLength >= 0 && all != r.w.Size && !r.resumed {
			return accel.Problemf(accel.DigestMismatch, "the file has %d bytes, wanted are %d", all, r.w.Size)
		}
		n, err := io.Copy(io.MultiWriter(r.f, r.sums), io.LimitReader(m.Reader(answer.Body), r.w.Size-r.n))
		r.n += n
		var machine *fs.PathError
		if errors.As(err, &machine) {
			return accel.ProblemOf(err, "cannot write the file")
		}
		if err == nil && r.n < r.w.Size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			r.resumed = r.n > 0
			return err
		}
		if more, _ := io.ReadFull(answer.Body, make([]byte, 1)); more > 0 {
			return accel.Problemf(accel.DigestMismatch, "the file has more than its %d bytes", r.w.Size)
		}
	}
	if r.sums.is(r.w.Digest) {
		return nil
	}
	got := r.sums.sha256()
	if r.resumed { // its beginning may be of another file
		return errors.Join(r.restart(), &StatusError{http.StatusRequestedRangeNotSatisfiable})
	}
	return accel.Problemf(accel.DigestMismatch, "the file has SHA-256 %s, wanted is %s", got, r.w.Digest)
}
