package unpack

import (
	"path"
	"path/filepath"
	"strings"
)

// hopLimit is how many links one path may lead through, as in the kernel (path_resolution(7)).
const hopLimit = 40

// resolved returns the text that a link gets, which is relative: an absolute link counts from the top of the tree. Why
// says where the link leads instead if not to something in the tree.
func (t *tree) resolved(name string) (text, why string) {
	text = t.links[name]
	if path.IsAbs(text) {
		rel, err := filepath.Rel(path.Dir("/"+name), path.Clean(text))
		if err != nil {
			return "", "a path that cannot be one"
		}
		text = rel
	}
	at, why := t.walk(path.Dir(name), text)
	if why != "" {
		return "", why
	}
	if _, file := t.files[at]; !file && !t.dirs[at] {
		return "", "something that is not there"
	}
	return text, ""
}

// walk follows a path from a directory of the tree, as the kernel would, and returns where it ends, without links. The
// end, or a part of it, may not exist.
func (t *tree) walk(dir, text string) (at, why string) {
	at = dir
	rest := strings.Split(text, "/")
	for hops := 0; len(rest) > 0; {
		element := rest[0]
		rest = rest[1:]
		switch element {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return "", "something outside"
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, element)
		to, isLink := t.links[next]
		if !isLink || t.dirs[next] {
			at = next
			continue
		}
		if hops++; hops > hopLimit || len(rest) > NameLimit {
			return "", "itself"
		}
		if path.IsAbs(to) {
			at = "."
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return at, ""
}
