package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Version converts the output of git describe into a version that dpkg and rpm sort correctly: a tag comes before the
// commits after it, and a release candidate before its release. A commit without an earlier tag is sorted by its
// time.
func Version(described string, created time.Time) (string, error) {
	// The compiler's version of a commit without a tag comes before the next release (go.dev/ref/mod, pseudo-versions).
	if m := regexp.MustCompile(`^v?(\d+\.\d+\.\d+)-([0-9A-Za-z.-]+\.)?(\d{14})-([0-9a-f]{12})$`).FindStringSubmatch(
		described); m != nil {
		return m[1] + "~" + m[2] + m[3] + "." + m[4], nil
	}
	rest, dirty := strings.CutSuffix(described, "-dirty")
	suffix := ""
	if dirty {
		suffix = ".dirty"
	}
	m := regexp.MustCompile(`^v?(\d+(?:\.\d+)*)(?:-([0-9A-Za-z.]+?))?(?:-(\d+)-(g[0-9a-f]+))?$`).FindStringSubmatch(
		rest)
	// Seven or more hexadecimal digits without a dot are the hash of a commit, not a version.
	commit := regexp.MustCompile(`^[0-9a-f]{7,40}$`).MatchString(rest)
	switch {
	case rest == "dev" || commit:
		return "0.0.0+" + created.UTC().Format("20060102150405") + "." + rest + suffix, nil
	case m == nil:
		return "", fmt.Errorf("cannot make a version of %q", described)
	}
	version := m[1]
	if m[2] != "" {
		version += "~" + m[2]
	}
	switch {
	case m[3] != "":
		version += "+" + m[3] + "." + m[4] + suffix
	case dirty:
		version += "+dirty"
	}
	return version, nil
}
