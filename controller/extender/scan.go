package extender

import (
	"bytes"
	"encoding/json"
	"slices"
)

// names are names of nodes, stored as their positions in a JSON text: in quotes, without escapes.
type names struct {
	text []byte
	at   []span
}

// span is where a name begins and ends. No text is longer than [maxBody].
type span struct{ from, to int32 }

// raw returns a name.
func (n *names) raw(i int) []byte { return n.text[n.at[i].from:n.at[i].to] }

// quoted returns a name with its quotes.
func (n *names) quoted(i int) []byte { return n.text[n.at[i].from-1 : n.at[i].to+1] }

// add copies a name.
func (n *names) add(name []byte) {
	from := int32(len(n.text) + 1)
	n.text = append(append(append(n.text, '"'), name...), '"')
	n.at = append(n.at, span{from, from + int32(len(name))})
}

// UnmarshalJSON reads names in any JSON spelling. A name that needs escaping stays escaped; no node has such a name.
func (n *names) UnmarshalJSON(data []byte) error {
	var all []string
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	n.text, n.at = nil, n.at[:0]
	for _, name := range all {
		from := int32(len(n.text) + 1)
		n.text = appendString(n.text, name)
		n.at = append(n.at, span{from, int32(len(n.text) - 1)})
	}
	return nil
}

// readArgs reads the arguments of filter and prioritize. Five thousand names are most of the text, so they are
// located and not copied, in a tenth of the time of encoding/json. That package reads the pod, and the whole text if
// it is not in the form that the scheduler writes. room is reused for the positions of the names.
func readArgs(data []byte, room []span, into *args) error {
	pod, found, ok := cut(data, room)
	if !ok {
		return json.Unmarshal(data, into)
	}
	into.NodeNames = found
	if len(pod) == 0 || string(pod) == "null" {
		return nil
	}
	return json.Unmarshal(pod, &into.Pod)
}

// cut finds the pod, as text, and the names in an object. It is not ok if the text has a form that it does not know.
func cut(text []byte, room []span) (pod []byte, found *names, ok bool) {
	s := scanner{text: text}
	if !s.take('{') {
		return nil, nil, false
	}
	for !s.take('}') {
		at, good := s.word()
		if !good || !s.take(':') {
			return nil, nil, false
		}
		key := text[at.from:at.to]
		s.space()
		start := s.at
		switch {
		case bytes.EqualFold(key, []byte("NodeNames")) && s.take('['):
			list, good := s.words(room)
			if !good {
				return nil, nil, false
			}
			found = &names{text, list}
		case !s.skip():
			return nil, nil, false
		case bytes.EqualFold(key, []byte("Pod")):
			pod = text[start:s.at]
		case bytes.EqualFold(key, []byte("NodeNames")) && string(text[start:s.at]) != "null":
			return nil, nil, false
		}
		if s.take(',') {
			if s.space(); s.at < len(text) && text[s.at] == '}' {
				return nil, nil, false
			}
		} else if s.at >= len(text) || text[s.at] != '}' {
			return nil, nil, false
		}
	}
	s.space()
	return pod, found, s.at == len(text)
}

// scanner walks through a JSON text.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) space() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n' || s.text[s.at] == '\t' ||
		s.text[s.at] == '\r') {
		s.at++
	}
}

// take skips spaces, and then the character if it is the next one.
func (s *scanner) take(c byte) bool {
	if s.space(); s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// word reads a plain string: printable ASCII, without escapes.
func (s *scanner) word() (span, bool) {
	if !s.take('"') {
		return span{}, false
	}
	for start := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return span{int32(start), int32(s.at - 1)}, true
		case c == '\\' || c < ' ' || c >= 0x7f:
			return span{}, false
		}
	}
	return span{}, false
}

// words reads the strings of an array, after its opening bracket.
func (s *scanner) words(out []span) ([]span, bool) {
	inside, _, closed := bytes.Cut(s.text[s.at:], []byte{']'})
	if !closed {
		return nil, false
	}
	if out = out[:0]; s.take(']') {
		return out, true
	}
	out = slices.Grow(out, bytes.Count(inside, []byte{','})+1)
	for {
		w, ok := s.word()
		if !ok {
			return nil, false
		}
		out = append(out, w)
		if s.take(']') {
			return out, true
		}
		if !s.take(',') {
			return nil, false
		}
	}
}

// skip skips any value.
func (s *scanner) skip() bool {
	depth := 0
	for s.space(); s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '"':
			if !s.skipString() {
				return false
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 { // it closes the parent: the value was a number or a word
				return true
			}
			depth--
		case ',':
			if depth == 0 {
				return true
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			s.at++
			return true
		}
	}
	return false
}

// skipString goes from the first quote of a string to its last.
func (s *scanner) skipString() bool {
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '"':
			return true
		}
	}
	return false
}
