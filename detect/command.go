package detect

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/acceld/acceld/host"
)

// Limits on what a process says about itself: whoever started it chose every byte.
const (
	maxWords = 1024 // arguments, or variables of an environment
	maxWord  = 4096 // bytes of one of them; as long as a path can be (PATH_MAX)
)

// command is how a process was started, or how systemd would start it.
type command struct {
	args []string // with the program
	env  map[string]string
}

// commandOf returns the command of a process. Its environment is empty if it may not be read.
func commandOf(h *host.Host, pid int) (command, error) {
	b, err := h.ReadBinary(processDir(pid) + "/cmdline")
	if err != nil {
		return command{}, err
	}
	args, err := words(b)
	if err != nil {
		return command{}, fmt.Errorf("%s/cmdline: %w", processDir(pid), err)
	}
	c := command{args: args, env: map[string]string{}}
	b, err = h.ReadBinary(processDir(pid) + "/environ")
	if err != nil {
		return c, nil //nolint:nilerr // it may not be read, which only leaves the environment empty
	}
	environ, err := words(b)
	if err != nil {
		return c, fmt.Errorf("%s/environ: %w", processDir(pid), err)
	}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			c.env[name] = value
		}
	}
	return c, nil
}

// words splits what procfs shows of a command line or of an environment: each word ends with a NUL byte.
func words(b []byte) ([]string, error) {
	text := strings.TrimRight(string(b), "\x00")
	if text == "" {
		return nil, nil
	}
	all := strings.SplitN(text, "\x00", maxWords+1)
	if len(all) > maxWords {
		return nil, fmt.Errorf("more than %d words", maxWords)
	}
	for _, w := range all {
		if len(w) > maxWord {
			return nil, fmt.Errorf("a word of more than %d bytes", maxWord)
		}
		if !utf8.ValidString(w) {
			return nil, errors.New("a word that is not text")
		}
	}
	return all, nil
}

// values returns the values of a flag, given as "--name=value" or "--name value", with two dashes or one.
func values(args []string, name string) []string {
	var all []string
	for i, a := range args {
		a, dashed := strings.CutPrefix(a, "-")
		a = strings.TrimPrefix(a, "-")
		if !dashed {
			continue
		}
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			all = append(all, v)
		} else if a == name && i+1 < len(args) {
			all = append(all, args[i+1])
		}
	}
	return all
}

// argument returns the last value of a flag.
func argument(args []string, name string) string {
	if all := values(args, name); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// setting is where a command line or an environment may have one setting of a daemon.
type setting struct {
	flags []string
	env   string // the variable that stands in for the flags; empty if there is none
}

// all returns the values of a setting, and whether it has any.
func (c command) all(s setting) (found []string, set bool) {
	for _, flag := range s.flags {
		found = append(found, values(c.args, flag)...)
	}
	if len(found) > 0 {
		return found, true
	}
	value, set := c.env[s.env]
	return []string{value}, set && s.env != ""
}

// file returns the setting if it is the path of a file or directory.
func (c command) file(s setting) string {
	all, _ := c.all(s)
	for _, v := range slices.Backward(all) {
		if usable(v) {
			return path.Clean(v)
		}
	}
	return ""
}

// dirs returns the directories in a setting, which are separated by commas if one value has several. It is nil if
// there is no such setting, which is something else than a setting without a directory.
func (c command) dirs(s setting) []string {
	all, set := c.all(s)
	if !set {
		return nil
	}
	dirs := []string{}
	for _, v := range all {
		for d := range strings.SplitSeq(v, ",") {
			if usable(d) && len(dirs) < maxDirs {
				dirs = append(dirs, path.Clean(d))
			}
		}
	}
	return dirs
}

// maxDirs is how many directories a setting may have; real ones have up to three.
const maxDirs = 64

// usable reports whether a value is an absolute path that can be shown to people.
func usable(v string) bool {
	return path.IsAbs(v) && len(v) <= maxWord && printable(v) && !strings.Contains(v, "\n")
}
