// Package deb makes Debian packages, and repositories of them that an OpenPGP key has signed, for tests.
package deb

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

// Package makes a package with files, by their path without a leading slash. A text that begins with "-> " is a link;
// one that begins as a program does may be executed.
func Package(name, version, arch string, files map[string]string) []byte {
	out := bytes.NewBufferString("!<arch>\n")
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\nDescription: of a test\n more of it\n", name,
		version, arch)
	for _, m := range []struct {
		name string
		text []byte
	}{
		{"debian-binary", []byte("2.0\n")},
		{"control.tar.gz", Gzip(Tar(map[string]string{"control": control}))},
		{"data.tar.gz", Gzip(Tar(files))},
	} {
		fmt.Fprintf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", m.name, 0, 0, 0, "100644", len(m.text), m.text)
		if len(m.text)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

// Tar makes an archive of files as in [Package].
func Tar(files map[string]string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		h := tar.Header{Typeflag: tar.TypeReg, Name: "./" + name, Mode: 0o644, Size: int64(len(text))}
		if strings.HasPrefix(text, "\x7fELF") || strings.HasPrefix(text, "#!") {
			h.Mode = 0o755
		}
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			h.Typeflag, h.Linkname, h.Size, text = tar.TypeSymlink, to, 0, ""
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err) // to memory
		}
		_, _ = io.WriteString(w, text)
	}
	_ = w.Close()
	return out.Bytes()
}

// Gzip compresses a text.
func Gzip(text []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(text) // to memory
	_ = w.Close()
	return out.Bytes()
}

// NewKey makes a key, born two days ago, that expires after some time; 0 is never.
func NewKey(name string, after time.Duration) (*openpgp.Entity, error) {
	born := time.Now().Add(-48 * time.Hour)
	return openpgp.NewEntity(name, "", name+"@example.org", &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, KeyLifetimeSecs: uint32(after.Seconds()),
		Time: func() time.Time { return born },
	})
}

// Sign signs a text as InRelease is, an hour ago.
func Sign(key *openpgp.Entity, text []byte) ([]byte, error) {
	var out bytes.Buffer
	hour := time.Now().Add(-time.Hour)
	w, err := clearsign.Encode(&out, key.PrivateKey, &packet.Config{Time: func() time.Time { return hour }})
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// Repository is a repository with one suite, "stable", and one component, "main". It serves its files over HTTP, with
// ranges. The zero value is not usable.
type Repository struct {
	key *openpgp.Entity

	mu    sync.Mutex
	files map[string][]byte // by path
	index string
}

// NewRepository makes an empty one with a key of its own.
func NewRepository() (*Repository, error) {
	key, err := NewKey("archive", 0)
	return &Repository{key: key, files: map[string][]byte{}}, err
}

// Key is the public key.
func (r *Repository) Key() ([]byte, error) {
	var out bytes.Buffer
	err := r.key.Serialize(&out)
	return out.Bytes(), err
}

// Add adds a package for amd64 or, with "all", for every processor.
func (r *Repository) Add(name, version, arch string, content []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	file := "pool/" + name + "_" + version + "_" + arch + ".deb"
	r.files[file] = content
	r.index += fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\nFilename: %s\nSize: %d\nSHA256: %s\n\n", name,
		version, arch, file, len(content), digest(content))
}

// Publish signs the repository as it is.
func (r *Repository) Publish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	packed := Gzip([]byte(r.index))
	const name = "main/binary-amd64/Packages.gz"
	release := fmt.Sprintf("Origin: test\nSuite: stable\nCodename: stablex\nArchitectures: amd64\nDate: %s\nSHA256:\n %s %d %s\n",
		time.Now().Add(-time.Hour).UTC().Format(time.RFC1123), digest(packed), len(packed), name)
	signed, err := Sign(r.key, []byte(release))
	r.files["dists/stable/"+name], r.files["dists/stable/InRelease"] = packed, signed
	return err
}

// ServeHTTP serves the repository below "/debian/".
func (r *Repository) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	content, ok := r.files[strings.TrimPrefix(q.URL.Path, "/debian/")]
	r.mu.Unlock()
	if !ok {
		http.NotFound(w, q)
		return
	}
	http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(content))
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
