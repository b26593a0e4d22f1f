package unpack

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
	"github.com/ulikunitz/xz/lzma"
)

// dictionary is the largest window of a decoder, in bytes: that of xz -9. A file may ask for gigabytes.
const dictionary = 64 << 20

// sniffed is how many bytes tell a compression from the others.
const sniffed = 13

// compression names the compression of a stream by its first bytes; empty if it is not compressed.
func compression(start []byte) string {
	for _, c := range []struct{ name, magic string }{
		{"gzip", "\x1f\x8b"},
		{"zstd", "\x28\xb5\x2f\xfd"},
		{"xz", "\xfd7zXZ\x00"},
		{"bzip2", "BZh"},
	} {
		if bytes.HasPrefix(start, []byte(c.magic)) {
			return c.name
		}
	}
	// An lzma file has no magic number: its first byte is lc, lp and pb, nearly always 0x5d, its next four the size of
	// the dictionary, and the next eight the size of its content or -1 (LZMA SDK, lzma.txt).
	if len(start) >= sniffed && start[0] == 0x5d && start[1] == 0 && start[2] == 0 &&
		(start[12] == 0 || start[12] == 0xff) {
		return "lzma"
	}
	return ""
}

// Decompress detects the compression from the first bytes, as container runtimes do: gzip, zstd, xz, bzip2, lzma or
// none. Closed frees the decoder.
func Decompress(r io.Reader) (content io.Reader, closed func(), err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	start, _ := in.Peek(sniffed) // what is shorter is not compressed
	closed = func() {}
	switch compression(start) {
	case "gzip":
		content, err = gzip.NewReader(in)
	case "zstd":
		var z *zstd.Decoder
		z, err = zstd.NewReader(in, zstd.WithDecoderMaxMemory(2*dictionary), zstd.WithDecoderConcurrency(2))
		if err == nil {
			content, closed = z, z.Close
		}
	case "xz":
		content, err = xz.NewReader(in, dictionary)
	case "bzip2":
		content = bzip2.NewReader(in)
	case "lzma":
		if size := binary.LittleEndian.Uint32(start[1:]); size > dictionary {
			return nil, closed, fmt.Errorf("its dictionary of %d bytes is larger than %d", size, dictionary)
		}
		content, err = lzma.NewReader(in)
	default:
		content = in
	}
	return content, closed, err
}
