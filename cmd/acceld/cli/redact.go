package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// As a rule, the sources of a report contain no secrets. There are exceptions: a proxy with a password, a registry
// that repeats a token in its error, a driver's log. So every byte of a report goes through redactor.text, which
// removes
//
//   - the actual secrets of this host, from the places that acceld knows: credentials of registries, of the
//     kubeconfig, of the pod, of the kubelet;
//   - what looks like a secret: PEM blocks, tokens of services, the values of names such as password, users in URLs;
//   - long runs of characters that look random.
//
// It is better to remove too much than too little. A placeholder marks each gap.

// redactor removes secrets from texts.
type redactor struct {
	known []string // longest first
}

// shortestSecret is the minimum length of a known secret that is searched for verbatim: a shorter one occurs in too
// many words.
const shortestSecret = 6

// knows adds texts that must not be in a report.
func (r *redactor) knows(secrets ...string) {
	for _, s := range secrets {
		if s = strings.TrimSpace(s); len(s) >= shortestSecret && !slices.Contains(r.known, s) {
			r.known = append(r.known, s)
		}
	}
	slices.SortFunc(r.known, func(a, b string) int { return len(b) - len(a) })
}

// learns adds the secrets in a credentials file: JSON as `docker login` writes it, a kubeconfig, a token, or PEM.
func (r *redactor) learns(content []byte) {
	var document any
	if yaml.Unmarshal(content, &document) == nil {
		if _, word := document.(string); !word {
			r.walk("", document)
			return
		}
	}
	r.knows(string(content)) // a bare token; PEM is matched by its form
}

// walk adds the values in a document whose names mark secrets.
func (r *redactor) walk(name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			r.walk(key, value)
		}
	case []any:
		for _, value := range v {
			r.walk(name, value)
		}
	case string:
		if !secretName().MatchString(name) || strings.HasPrefix(v, "/") && strings.Contains(v[1:], "/") {
			return // a path of two or more parts is no secret
		}
		r.knows(v)
		if plain, err := base64.StdEncoding.DecodeString(v); err == nil { // "auth" is user:password
			if _, password, ok := strings.Cut(string(plain), ":"); ok {
				r.knows(password)
			}
		}
	}
}

// secretWords are the endings of names of secrets. pathWords are those of names whose values in acceld's own files
// may be paths; paths are kept.
const (
	secretWords = `pass(?:wd|word|phrase)|(?:\b|[_.-])pass|(?-i:[a-z]Pass)|secret|token|bearer|authorization|cookie|session|api[-_]?key|access[-_]?key|private[-_]?key|client-key-data|client-certificate-data|certificate-authority-data|dockerconfig(?:json)?|auth` //nolint:gosec // names of secrets, and none
	pathWords   = `credentials?|client-key|client-certificate|certificate-authority`
)

// secretName matches names whose values are secrets.
func secretName() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:` + secretWords + `|credentials?)$`)
}

// form is a pattern of secrets, and what replaces a match.
type form struct {
	looks   *regexp.Regexp
	instead string
}

// compiled returns the forms of a table: pattern, replacement.
func compiled(table [][2]string) []form {
	var out []form
	for _, row := range table {
		out = append(out, form{regexp.MustCompile(row[0]), row[1]})
	}
	return out
}

// longForms are the forms that span several lines.
func longForms() []form {
	return compiled([][2]string{
		// A block without an end was cut. It takes the base64 lines that follow, or one line in which line ends are
		// escaped.
		{`-----BEGIN ([A-Z0-9 ]+)-----(?s:.*?)-----END [A-Z0-9 ]+-----`, "[redacted: $1]"},
		{`(?m)-----BEGIN ([A-Z0-9 ]+)-----[^\n"]*(?:\n[ \t]*[A-Za-z0-9+/=:, -]+$)*`, "[redacted: $1]"},
		// "password:" with a block of lines below it.
		{
			`(?im)(^[ \t]*(?:- )?["']?[\w.-]*(?:` + secretWords +
				`)["']?[ \t]*:[ \t]*)[|>][-+0-9]*[ \t]*\n(?:[ \t]+[^\n]*\n?)+`,
			"${1}[redacted]\n",
		},
	})
}

// forms are the forms within one line, tried in order. None of them matches the bracketed placeholder of an earlier
// one.
func forms() []form {
	const (
		name = `[\w.-]*(?:` + secretWords + `)`
		path = `[\w.-]*(?:` + pathWords + `)`
	)
	return compiled([][2]string{
		{`(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`, "${1}[redacted]"},
		{`\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?`, "[redacted: token]"},
		{`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'@\[\]]+@`, "${1}[redacted]@"},
		// "password": "…", also if the JSON is quoted once more.
		{`(?i)("` + name + `"\s*:\s*")(?:[^"\\]|\\.)+`, "${1}[redacted]"},
		{`(?i)(\\+"` + name + `\\+"\s*:\s*\\+")(?:[^"\\]|\\\\\\"|\\\\[^"\\])+`, "${1}[redacted]"},
		// password: …, also with escaped line ends; {password: …}.
		{`(?i)(` + name + `\s*:\s*)[|>][-+0-9]*\s*(?:\\n[ \t]+[^\\"\n]*)+`, "${1}[redacted]"},
		{`(?im)(^[ \t]*(?:- )?["']?` + name + `["']?[ \t]*:[ \t]+)[^\s{\[][^\n]*`, "${1}[redacted]"},
		{`(?im)(^[ \t]*(?:- )?["']?` + path + `["']?[ \t]*:[ \t]+["']?)[^\s{\["'/][^\n]*`, "${1}[redacted]"},
		{`(?i)([{,]\s*["']?` + name + `["']?\s*:\s*)[^\s"',}][^,}\n]*`, "${1}[redacted]"},
		// PASSWORD=…, --password=… and --password …
		{`(?i)(\b` + name + `=["']?)[^\s"'&,;\[]+`, "${1}[redacted]"},
		{`(?i)(--` + name + `\s+["']?)[^\s"'&,;\[-][^\s"'&,;]*`, "${1}[redacted]"},
		{`(?i)\b(` + name + `: ?["']?)[^\s"',;\[{]{6,}`, "${1}[redacted]"}, // in a sentence
		// Tokens of clouds and forges, and bootstrap tokens of kubelets.
		{
			`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}|\bdckr_pat_[\w-]{16,}`,
			"[redacted: token]",
		},
		{bootstrapToken, "[redacted: token]"},
	})
}

// text removes the secrets from s.
func (r *redactor) text(s string) string {
	for _, secret := range r.known {
		s = strings.ReplaceAll(s, secret, "[redacted]")
		if quoted, err := json.Marshal(secret); err == nil { // as it appears in JSON
			s = strings.ReplaceAll(s, strings.Trim(string(quoted), `"`), "[redacted]")
		}
	}
	for _, f := range longForms() {
		s = f.looks.ReplaceAllString(s, f.instead)
	}
	var b strings.Builder
	single, bootstrap := forms(), regexp.MustCompile(bootstrapToken)
	for line := range strings.Lines(s) {
		if suspicious(line) || bootstrap.MatchString(line) {
			for _, f := range single {
				line = f.looks.ReplaceAllString(line, f.instead)
			}
		}
		b.WriteString(line)
	}
	s = b.String()
	return regexp.MustCompile(`[A-Za-z0-9+/_=-]{32,}`).ReplaceAllStringFunc(s, func(word string) string {
		if !random(word) {
			return word
		}
		return fmt.Sprintf("[redacted: %d characters]", len(word))
	})
}

// suspicious reports whether a line can match one of the forms, except that of bootstrapToken: a line without any of
// these words cannot. The check saves seconds for each megabyte.
func suspicious(line string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc([]string{
		"pass", "secret", "token", "bearer", "basic", "authorization", "cookie", "session", "key", "certificate",
		"dockerconfig", "auth", "credential",
		"eyj", "://", "akia", "asia", "gh", "glpat", "xox", "dckr",
	}, func(word string) bool { return strings.Contains(line, word) })
}

// bootstrapToken is the form of kubeadm's bootstrap tokens.
const bootstrapToken = `\b[a-z0-9]{6}\.[a-z0-9]{16}\b` //nolint:gosec // a pattern, not a token

// random reports whether a long run of characters looks random, such as a base64 key. Hexadecimal digests and ids,
// paths, and names of several words do not count as random.
func random(word string) bool {
	longest := 0
	for part := range strings.FieldsFuncSeq(word, func(c rune) bool { return c == '/' || c == '-' || c == '_' }) {
		longest = max(longest, len(part))
	}
	classes := []func(rune) bool{unicode.IsUpper, unicode.IsLower, unicode.IsDigit}
	for _, is := range classes {
		if longest < 16 || !strings.ContainsFunc(word, is) {
			return false
		}
	}
	turns, last := 0, -1
	for _, c := range word {
		class := slices.IndexFunc(classes, func(is func(rune) bool) bool { return is(c) })
		if class != last {
			turns, last = turns+1, class
		}
	}
	return turns*4 > len(word) // by chance the class changes at over half of the characters, in names hardly ever
}
