package extender

import (
	"bytes"
	"encoding/json"
	"slices"
)

// names are those of nodes, where they are in a text of JSON: in their quotes, and without anything escaped.
type names struct {
	text []byte
	at   []span
}

// span is where a name begins and ends.
type span struct{ from, to int }

// raw is a name.
func (n *names) raw(i int) []byte { return n.text[n.at[i].from:n.at[i].to] }

// quoted is a name with its quotes.
func (n *names) quoted(i int) []byte { return n.text[n.at[i].from-1 : n.at[i].to+1] }

// UnmarshalJSON reads names whatever way they are written. What has to be escaped stays so: it is the name of no node.
func (n *names) UnmarshalJSON(data []byte) error {
	var all []string
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	n.text, n.at = nil, n.at[:0]
	for _, name := range all {
		from := len(n.text) + 1
		n.text = appendString(n.text, name)
		n.at = append(n.at, span{from, len(n.text) - 1})
	}
	return nil
}

// readArgs reads the arguments of filter and prioritize, whose names are where data has them. Five thousand names are
// most of them: they are found and not copied, in a tenth of the time of encoding/json. That package reads the pod, and
// everything where a text is not as the scheduler writes it. The memory of room is used for where names are.
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

// cut finds the pod, as text, and the names in an object. It is not ok where there is something that it does not know.
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

// scanner goes through a text of JSON.
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

// take goes beyond a character when it is the next one, after spaces.
func (s *scanner) take(c byte) bool {
	if s.space(); s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// word reads a string that is written as it is: in printable ASCII, without escapes.
func (s *scanner) word() (span, bool) {
	if !s.take('"') {
		return span{}, false
	}
	for start := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return span{start, s.at - 1}, true
		case c == '\\' || c < ' ' || c >= 0x7f:
			return span{}, false
		}
	}
	return span{}, false
}

// words reads the strings of an array, behind its bracket.
func (s *scanner) words(out []span) ([]span, bool) {
	end := bytes.IndexByte(s.text[s.at:], ']')
	if end < 0 {
		return nil, false
	}
	if out = out[:0]; s.take(']') {
		return out, true
	}
	out = slices.Grow(out, bytes.Count(s.text[s.at:s.at+end], []byte{','})+1)
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

// skip goes beyond a value, whatever it is.
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
			if depth == 0 { // of what is around it: the value was a number or a word
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

// skipString goes to the end of a string, from its beginning.
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
