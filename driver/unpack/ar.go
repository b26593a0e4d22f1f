package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// arMagic begins an ar archive, and arHeader is the length of the header of each member: name, time, owner, group,
// mode, size and two closing bytes (ar(5) of FreeBSD, deb(5)).
const (
	arMagic  = "!<arch>\n"
	arHeader = 60
)

// arReader reads the members of an ar archive, as much of the format as deb(5) uses.
type arReader struct {
	r      io.Reader
	member exact
	odd    bool // the member is followed by a filling byte
	began  bool
}

// next returns the name and the size of the next member, which the reader then reads; io.EOF after the last.
func (a *arReader) next() (name string, size int64, err error) {
	if !a.began {
		magic := make([]byte, len(arMagic))
		if _, err := io.ReadFull(a.r, magic); err != nil || string(magic) != arMagic {
			return "", 0, errors.New("it is no ar archive")
		}
		a.began = true
	}
	if err := a.member.skip(); err != nil {
		return "", 0, err
	}
	if a.odd {
		if _, err := io.CopyN(io.Discard, a.r, 1); err != nil {
			return "", 0, err // io.EOF: some writers leave the last filling byte out
		}
	}
	var header [arHeader]byte
	if _, err := io.ReadFull(a.r, header[:]); err != nil {
		return "", 0, err
	}
	text := strings.TrimRight(string(header[48:58]), " ")
	size, err = strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 || string(header[58:]) != "`\n" {
		return "", 0, errors.New("its ar archive has a header that cannot be read")
	}
	a.member, a.odd = exact{a.r, size}, size%2 == 1
	return strings.TrimSuffix(strings.TrimRight(string(header[:16]), " "), "/"), size, nil
}

// The members of a deb that are read (deb(5)), and how many members it may have: "_gpgorigin" and its like stand beside
// them.
const (
	debVersion  = "debian-binary"
	debControl  = "control.tar"
	debData     = "data.tar"
	debMembers  = 16
	controlSize = 4 << 20 // uncompressed bytes of the control archive, scripts included
)

// Deb is an open deb archive.
type Deb struct {
	// Control is the text of its control file: what the package is.
	Control string
	// Data is the archive of its files, to be read once.
	Data io.Reader
}

// OpenDeb reads a deb up to its files. The error blames the archive.
func OpenDeb(r io.Reader) (Deb, error) {
	a := &arReader{r: r}
	var d Deb
	for n := 0; n < debMembers; n++ {
		name, _, err := a.next()
		if errors.Is(err, io.EOF) {
			return d, errors.New("it has no data.tar")
		}
		if err != nil {
			return d, err
		}
		switch base, _, _ := strings.Cut(strings.TrimPrefix(name, "."), ".tar"); {
		case n == 0 && name != debVersion:
			return d, fmt.Errorf("it begins with %.16q, a deb with %q", name, debVersion)
		case base+".tar" == debControl && strings.HasPrefix(name, debControl):
			if d.Control, err = control(&a.member); err != nil {
				return d, err
			}
		case base+".tar" == debData && strings.HasPrefix(name, debData):
			if d.Control == "" {
				return d, errors.New("it has no control file before its data")
			}
			d.Data = &a.member
			return d, nil
		}
	}
	return d, fmt.Errorf("it has more than %d members", debMembers)
}

// control returns the control file of a control archive.
func control(r io.Reader) (string, error) {
	content, closed, err := Decompress(r)
	defer closed()
	if err != nil {
		return "", fmt.Errorf("its control archive cannot be read: %w", err)
	}
	archive := tar.NewReader(Limit(content, controlSize))
	for {
		header, err := archive.Next()
		if err != nil {
			return "", fmt.Errorf("its control archive has no control file: %w", err)
		}
		if strings.TrimPrefix(header.Name, "./") == "control" && header.Typeflag == tar.TypeReg {
			text, err := io.ReadAll(archive)
			return string(text), err
		}
	}
}
