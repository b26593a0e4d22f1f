package accel

import (
	"fmt"
	"regexp"
	"strings"
)

// InBranch reports whether a driver's version belongs to a branch: "535.309.01" does to "535", and "5350.1" does not.
func InBranch(version, branch string) bool {
	return branch != "" && (version == branch || strings.HasPrefix(version, branch+"."))
}

// BranchOf is the first part of a driver's version, which some distributions have in the names of packages: "535" of
// "535.309.01".
func BranchOf(version string) string {
	branch, _, _ := strings.Cut(version, ".")
	return branch
}

// BranchProblems returns the errors in a branch that stands beside a version, each as "<field>: <sentence>".
func BranchProblems(branch, version string) []string {
	switch {
	case branch == "":
		return nil
	case version != "":
		return []string{"branch: version is set too; set only one of them"}
	case !regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9}){0,3}$`).MatchString(branch):
		return []string{fmt.Sprintf("branch: %q is not the beginning of a version, such as 535", branch)}
	}
	return nil
}
