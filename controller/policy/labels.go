package policy

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"unique"
)

// labels are the labels of a node. A node has dozens, which it has in common with most others: those of Node Feature
// Discovery describe a model of processor, acceld's a state. So the labels of each domain, the part of a key before the
// slash, are one text, and nodes with the same text share it. They never change.
//
// A text is the domain, and for each label, sorted, [beforeName] name [beforeValue] value, and [beforeName] at its end.
// The name of the node, which is a value of its own domain, is [ownName] there. The API server lets none of these
// characters into a label.
type labels struct {
	node    string
	domains []unique.Handle[string]
}

const beforeName, beforeValue, ownName = "\x00", "\x01", "\x02"

// packed returns the labels of a node in this form.
func packed(node string, all map[string]string) labels {
	domains := map[string][]string{}
	for key := range all {
		domain, _ := parts(key)
		domains[domain] = append(domains[domain], key)
	}
	out := labels{node, make([]unique.Handle[string], 0, len(domains))}
	for _, domain := range slices.Sorted(maps.Keys(domains)) {
		keys := domains[domain]
		slices.Sort(keys)
		var text strings.Builder
		text.WriteString(domain)
		for _, key := range keys {
			_, name := parts(key)
			value := all[key]
			if value == node && node != "" {
				value = ownName
			}
			text.WriteString(beforeName + name + beforeValue + value)
		}
		text.WriteString(beforeName)
		out.domains = append(out.domains, unique.Make(text.String()))
	}
	return out
}

// parts are the domain of a key, with its slash, and its name.
func parts(key string) (domain, name string) {
	i := strings.IndexByte(key, '/') + 1
	return key[:i], key[i:]
}

// find returns the value of a label, and whether there is one.
func (l labels) find(key string) (value string, found bool) {
	domain, name := parts(key)
	for _, h := range l.domains {
		rest, same := strings.CutPrefix(h.Value(), domain)
		if !same || !strings.HasPrefix(rest, beforeName) {
			continue
		}
		_, after, there := strings.Cut(rest, beforeName+name+beforeValue)
		if !there {
			return "", false
		}
		if value, _, _ = strings.Cut(after, beforeName); value == ownName {
			value = l.node
		}
		return value, true
	}
	return "", false
}

// get returns the value of a label; empty if there is none.
func (l labels) get(key string) string {
	value, _ := l.find(key)
	return value
}

// same reports whether two versions of a node have the same labels.
func (l labels) same(o labels) bool { return slices.Equal(l.domains, o.domains) }

// has reports whether the labels contain all of selector.
func (l labels) has(selector map[string]string) bool {
	for key, want := range selector {
		if value, found := l.find(key); !found || value != want {
			return false
		}
	}
	return true
}

// keys are the keys of a domain, such as "acceld.dev/".
func (l labels) keys(domain string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, h := range l.domains {
			at, rest, _ := strings.Cut(h.Value(), beforeName)
			if at != domain {
				continue
			}
			for label := range strings.SplitSeq(strings.TrimSuffix(rest, beforeName), beforeName) {
				name, _, _ := strings.Cut(label, beforeValue)
				if !yield(domain + name) {
					return
				}
			}
		}
	}
}

// marks are the annotations of a node that this package reads, sorted by key. A node has a few, and a map takes ten
// times the memory.
type marks []mark

type mark struct{ key, text string }

// marked returns the annotations that keep accepts.
func marked(all map[string]string, keep func(key string) bool) marks {
	var out marks
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if keep(key) {
			out = append(out, mark{once(key), once(all[key])})
		}
	}
	return slices.Clone(out) // without room for more
}

// find returns the text of an annotation, and whether there is one.
func (m marks) find(key string) (text string, found bool) {
	for _, x := range m {
		if x.key == key {
			return x.text, true
		}
	}
	return "", false
}

// get returns the text of an annotation; empty if there is none.
func (m marks) get(key string) string {
	text, _ := m.find(key)
	return text
}

// once keeps one copy of a text that many nodes share.
func once(s string) string { return unique.Make(s).Value() }
