package unpack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// A self-extracting archive is a shell script with an archive behind it. The script says after how many of its lines
// the archive begins, by a variable or, in old ones, by a command (makeself 2.1 to 2.5, makeself-header.sh). It is
// never executed.
const (
	scriptLimit = 2 << 20 // bytes of the script
	linesLimit  = 20_000  // its lines
)

var (
	skipForm  = regexp.MustCompile(`(?m)^\s*skip="?([0-9]{1,6})"?\s*$`)
	headForm  = regexp.MustCompile(`(?m)^offset=.head -n "?([0-9]{1,6})"?`)
	sizesForm = regexp.MustCompile(`(?m)^\s*filesizes="([0-9 ]{0,64})"\s*$`)
)

// payload returns where the archive of a self-extracting archive begins, in bytes, and its size; 0 if it goes on to the
// end. Start are the first bytes of the file.
func payload(start []byte) (offset, size int64, err error) {
	if !bytes.HasPrefix(start, []byte("#!")) {
		return 0, 0, errors.New("it does not begin with a script")
	}
	number := skipForm.FindSubmatch(start)
	if number == nil {
		number = headForm.FindSubmatch(start)
	}
	if number == nil {
		return 0, 0, errors.New("its script does not say where its archive begins")
	}
	lines, err := strconv.Atoi(string(number[1]))
	if err != nil || lines < 2 || lines > linesLimit {
		return 0, 0, fmt.Errorf("its script says that it has %s lines", number[1])
	}
	if sizes := sizesForm.FindSubmatch(start); sizes != nil {
		all := strings.Fields(string(sizes[1]))
		if len(all) > 1 {
			return 0, 0, fmt.Errorf("it has %d archives, one is supported", len(all))
		}
		if len(all) == 1 {
			if size, err = strconv.ParseInt(all[0], 10, 64); err != nil || size <= 0 {
				return 0, 0, fmt.Errorf("its archive has %.20q bytes", all[0])
			}
		}
	}
	// `head -n N` counts the lines of the script, `tail -n +N` names the first line of the archive.
	at := 0
	for n := 1; n <= lines; n++ {
		end := bytes.IndexByte(start[at:], '\n')
		if end < 0 {
			return 0, 0, fmt.Errorf("its script has fewer than %d lines", lines)
		}
		at += end + 1
		if n >= lines-1 && compression(start[at:]) != "" {
			return int64(at), size, nil
		}
	}
	return 0, 0, fmt.Errorf("no compressed archive begins after %d lines", lines)
}

// body returns the archive in a self-extracting archive, or the whole of another file.
func body(f io.ReadSeeker) (io.Reader, error) {
	start, err := io.ReadAll(io.LimitReader(f, scriptLimit))
	if err != nil {
		return nil, err
	}
	var offset, size int64
	if bytes.HasPrefix(start, []byte("#!")) {
		if offset, size, err = payload(start); err != nil {
			return nil, err
		}
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	if size > 0 {
		return &exact{f, size}, nil
	}
	return f, nil
}
