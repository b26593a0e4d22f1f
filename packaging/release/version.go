package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// versionOf returns the version that the compiler stamped into a program, without the "v": a tag, or the time and the
// hash of a commit. It fails for a program from a tree with changes that are in no commit: nobody could make it again.
func versionOf(program string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("cannot read the version of %q: %w", program, err)
	}
	version, stamped := strings.CutPrefix(info.Main.Version, "v")
	switch {
	case !stamped:
		return "", fmt.Errorf("program %q has no version: build it in a clone of the repository", program)
	case strings.HasSuffix(version, "+dirty"):
		return "", fmt.Errorf("program %q is of a tree with changes: commit them first", program)
	}
	return version, semantic(version)
}

// semantic fails for a version that a chart or the tag of an image cannot have.
func semantic(version string) error {
	v, err := semver.StrictNewVersion(version)
	if err != nil {
		return fmt.Errorf("version %q is no semantic version such as 1.2.3 or 1.3.0-rc.1: %w", version, err)
	}
	if v.Metadata() != "" {
		return fmt.Errorf("version %q has a +: no image can have it as a tag", version)
	}
	return nil
}

// unreleased matches the version that the compiler gives to a commit without a tag.
var unreleased = regexp.MustCompile(`(^|\.|-)\d{14}-[0-9a-f]{12}$`)

// changesListed fails if CHANGELOG.md has no section of this version. A commit without a tag needs none.
func (o *Options) changesListed() error {
	if unreleased.MatchString(o.Version) {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(o.Root, "CHANGELOG.md"))
	if err != nil {
		return fmt.Errorf("cannot read what changed: %w", err)
	}
	if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(o.Version) + `( |$)`).Match(text) {
		return fmt.Errorf("CHANGELOG.md has no section %q", "## "+o.Version)
	}
	return nil
}
