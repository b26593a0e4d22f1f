package unpack

import (
	"errors"
	"io"
)

// Bounds limit what archives may make this host write. They apply to all archives of one [Extraction] together.
type Bounds struct {
	Bytes int64 // uncompressed bytes that are read, and bytes that are written
	Files int   // entries of any type, with the directories that they need
}

// Usual returns bounds far above the largest known driver (user space and firmware: 1.2 GB unpacked) and the largest
// known set of kernel headers (25,000 files), and far below what harms a host.
func Usual() Bounds { return Bounds{Bytes: 4 << 30, Files: 100_000} }

// NameLimit is the length of the longest name of an entry, as of a path in Linux (PATH_MAX).
const NameLimit = 4096

// depthLimit is how many elements a name may have: each may cost a directory.
const depthLimit = 64

// errTooLarge is the error of a bounded reader past its limit.
var errTooLarge = errors.New("it unpacks to more than it may have")

// bounded passes on as many bytes as are left and then fails. With io.LimitReader, a decompression bomb would end like
// a valid archive. It also fails once the work was called off.
type bounded struct {
	r     io.Reader
	left  *int64
	ended func() error
}

func (b bounded) Read(p []byte) (int, error) {
	if err := b.ended(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p[:min(int64(len(p)), *b.left+1)])
	if int64(n) > *b.left {
		n, err = int(*b.left), errTooLarge
	}
	*b.left -= int64(n)
	return n, err
}

// Limit returns a reader that fails once r has more than most bytes.
func Limit(r io.Reader, most int64) io.Reader {
	return bounded{r, &most, func() error { return nil }}
}

// exact reads exactly n bytes: an earlier end is an error, so that a truncated archive is not taken for a short one.
type exact struct {
	r io.Reader
	n int64
}

func (e *exact) Read(p []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.n)])
	if e.n -= int64(n); e.n == 0 {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// skip reads the rest.
func (e *exact) skip() error {
	_, err := io.Copy(io.Discard, e)
	return err
}
