package packages

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
)

// release is a Release file of a deb repository: what it is, and the digests of its indexes
// (https://wiki.debian.org/DebianRepository/Format, read 2026-11).
type release struct {
	names []string // Suite and Codename
	date  time.Time
	until time.Time // zero if it has no end
	files map[string]indexed
	// byHash says that an index is also there under its digest.
	byHash bool
	// apart says that packages for every architecture are in an index of their own only.
	apart bool
}

// indexed is a file of which a signed file has size and digest.
type indexed struct {
	digest transfer.Digest
	size   int64
}

// clockSlack is how far the clocks of a repository and of this host may differ.
const clockSlack = 24 * time.Hour

// parseRelease reads a Release file.
func parseRelease(text []byte) (release, error) {
	s, err := single(bytes.NewReader(text))
	if err != nil {
		return release{}, err
	}
	r := release{
		files: map[string]indexed{}, byHash: strings.EqualFold(s["acquire-by-hash"], "yes"),
		apart: slices.Contains(strings.Fields(s["architectures"]), "all") &&
			s["no-support-for-architecture-all"] != "Packages",
	}
	for _, name := range []string{s["suite"], s["codename"]} {
		if name != "" {
			r.names = append(r.names, name)
		}
	}
	if r.date, err = parseDate(s["date"]); err != nil {
		return r, fmt.Errorf("its Date is %.64q", s["date"])
	}
	if text := s["valid-until"]; text != "" {
		if r.until, err = parseDate(text); err != nil {
			return r, fmt.Errorf("its Valid-Until is %.64q", text)
		}
	}
	for _, line := range strings.Split(s["sha256"], "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return r, fmt.Errorf("it has no digest in %.64q", line)
		}
		size, err := strconv.ParseInt(fields[1], 10, 64)
		d := transfer.SHA256(fields[0])
		if err != nil || size < 0 || !d.Valid() {
			return r, fmt.Errorf("it has no digest in %.64q", line)
		}
		r.files[strings.TrimPrefix(fields[2], "./")] = indexed{d, size}
	}
	return r, nil
}

// parseDate reads a date as of RFC 5322, with a zone by number or by name.
func parseDate(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC1123, "Mon, _2 Jan 2006 15:04:05 MST"} {
		if when, err := time.Parse(layout, text); err == nil {
			if name, offset := when.Zone(); offset == 0 && (name == "UTC" || name == "GMT") {
				return when.UTC(), nil
			}
		}
	}
	when, err := time.Parse("Mon, _2 Jan 2006 15:04:05 -0700", text)
	return when.UTC(), err
}

// fresh says why a repository that was signed at a date must not be used now; nil if it may. Until is zero if it has no
// end, and seen if this host has not used it yet.
func fresh(date, until, seen, now time.Time) *accel.Problem {
	const layout = time.RFC3339
	switch {
	case date.After(now.Add(clockSlack)):
		return accel.Problemf(accel.SignatureInvalid, "it is of %s, which is not yet: check the clock of this host",
			date.Format(layout))
	case !until.IsZero() && until.Before(now):
		return accel.Problemf(accel.SignatureInvalid,
			"it was valid until %s: somebody serves an old one, or does not update it any more", until.Format(layout))
	case date.Before(seen.Truncate(time.Second)):
		return accel.Problemf(accel.SignatureInvalid,
			"it is of %s and this host has seen it of %s: somebody serves an old one", date.Format(layout),
			seen.Format(layout))
	}
	return nil
}

// is says why the release is not of a suite; empty if it is. Without the check, whoever serves a repository could put
// another suite in the place of the wanted one: the same key signs both.
func (r release) is(suite string) string {
	if strings.HasSuffix(suite, "/") || len(r.names) == 0 || slices.Contains(r.names, suite) {
		return ""
	}
	return fmt.Sprintf("it is of suite %.64q, wanted is %q", strings.Join(r.names, ", "), suite)
}

// index finds the index of a directory, such as "main/binary-amd64", in the best compression.
func (r release) index(dir string) (name string, f indexed, ok bool) {
	for _, suffix := range []string{".xz", ".zst", ".gz", ".bz2", ""} {
		name := strings.TrimPrefix(dir+"/Packages"+suffix, "/")
		if f, ok := r.files[name]; ok {
			return name, f, true
		}
	}
	return "", indexed{}, false
}
