package detect

import (
	"bufio"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/host"
)

const (
	dpkgStatus = "/var/lib/dpkg/status"
	dpkgInfo   = "/var/lib/dpkg/info"
)

// packageVersion returns the upstream version of the installed Debian package, one of those with the names, that
// contains a program; empty if there is none. Only Debian and Ubuntu build programs that do not tell their version.
func packageVersion(h *host.Host, program string, names []string) string {
	owners := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		lists := h.Glob(dpkgInfo, name+".list")
		return !slices.ContainsFunc(append(lists, h.Glob(dpkgInfo, name+":*.list")...), func(list string) bool {
			text, err := h.ReadAttribute(list)
			return err == nil && slices.Contains(strings.Split(text, "\n"), program)
		})
	})
	if len(owners) == 0 {
		return ""
	}
	f, err := h.Open(dpkgStatus)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()                       // opened for reading
	return scanPackages(io.LimitReader(f, 64<<20), owners) // a desktop has 5 MB
}

// upstream is the version in a Debian package's version, without an epoch (deb-version(7)).
var upstream = regexp.MustCompile(`^(?:[0-9]+:)?([0-9]+\.[0-9A-Za-z.+~-]{1,60})$`)

// scanPackages returns the version of the first installed package with one of the names in dpkg's database: paragraphs
// of "Field: value", with an empty line between two.
func scanPackages(r io.Reader, names []string) string {
	in := bufio.NewReaderSize(r, 64<<10)
	var name, status, version string
	for {
		line, err := in.ReadSlice('\n')
		text := strings.TrimSpace(string(line))
		field, value, _ := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch field {
		case "Package":
			name = value
		case "Status":
			status = value
		case "Version":
			version = value
		}
		if text != "" && !errors.Is(err, io.EOF) {
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line is read as lines again
				return ""
			}
			continue
		}
		if m := upstream.FindStringSubmatch(version); m != nil && slices.Contains(names, name) &&
			strings.HasSuffix(status, " installed") {
			return m[1]
		}
		if err != nil {
			return ""
		}
		name, status, version = "", "", ""
	}
}
