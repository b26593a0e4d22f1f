package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// A report is made of things that hold no secrets as a rule. Rules have exceptions: a proxy with a password, a registry
// that repeats a token in its error, a driver's log. So every byte of a report goes through redactor.text, which takes
// out
//
//   - the very secrets that this host has where acceld knows to look: credentials of registries, of the kubeconfig, of
//     the pod, of the kubelet;
//   - what has the form of one: blocks of PEM, tokens of services, the values of names such as password, users in URLs;
//   - long runs of characters that look drawn by chance.
//
// Too much is better than too little; what is left out says so.

// redactor takes secrets out of texts.
type redactor struct {
	known []string // longest first
}

// shortest is the length of the shortest secret that is looked for as it is: a shorter one is part of too many words.
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

// learns adds the secrets in a file of credentials: JSON as `docker login` writes it, a kubeconfig, a token, or PEM.
func (r *redactor) learns(content []byte) {
	var document any
	if yaml.Unmarshal(content, &document) == nil {
		if _, word := document.(string); !word {
			r.walk("", document)
			return
		}
	}
	r.knows(string(content)) // a token alone; PEM has a form of its own
}

// walk adds the values of secret names in a document.
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
			return // a path of two or more parts is none
		}
		r.knows(v)
		if plain, err := base64.StdEncoding.DecodeString(v); err == nil { // "auth" is user:password
			if _, password, ok := strings.Cut(string(plain), ":"); ok {
				r.knows(password)
			}
		}
	}
}

// words are what the names of secrets end in. Of credentials, keys and certificates acceld's own files have the paths;
// those stay.
const (
	secretWords = `pass(?:wd|word|phrase)|(?:\b|[_.-])pass|(?-i:[a-z]Pass)|secret|token|bearer|authorization|cookie|session|api[-_]?key|access[-_]?key|private[-_]?key|client-key-data|client-certificate-data|certificate-authority-data|dockerconfig(?:json)?|auth` //nolint:gosec // names of secrets, and none
	pathWords   = `credentials?|client-key|client-certificate|certificate-authority`
)

// secretName matches names whose values are secrets.
func secretName() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:` + secretWords + `|credentials?)$`)
}

// form is how a secret looks, and what is written instead of it.
type form struct {
	looks   *regexp.Regexp
	instead string
}

// longForms are those of several lines.
func longForms() []form {
	return []form{
		// A block without an end was cut: its lines are those of base64, or one where line ends are escaped.
		{regexp.MustCompile(`-----BEGIN ([A-Z0-9 ]+)-----(?s:.*?)-----END [A-Z0-9 ]+-----`), "[redacted: $1]"},
		{
			regexp.MustCompile(`(?m)-----BEGIN ([A-Z0-9 ]+)-----[^\n"]*(?:\n[ \t]*[A-Za-z0-9+/=:, -]+$)*`),
			"[redacted: $1]",
		},
		// password: with the lines below it.
		{regexp.MustCompile(`(?im)(^[ \t]*(?:- )?["']?[\w.-]*(?:` + secretWords +
			`)["']?[ \t]*:[ \t]*)[|>][-+0-9]*[ \t]*\n(?:[ \t]+[^\n]*\n?)+`), "${1}[redacted]\n"},
	}
}

// forms are those of one line, tried in order. What stands in brackets afterwards is matched by none.
func forms() []form {
	const (
		name = `[\w.-]*(?:` + secretWords + `)`
		path = `[\w.-]*(?:` + pathWords + `)`
	)
	return []form{
		{regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`), "${1}[redacted]"},
		{regexp.MustCompile(`\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?`), "[redacted: token]"},
		{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'@\[\]]+@`), "${1}[redacted]@"},
		// "password": "…", also where that is quoted once more.
		{regexp.MustCompile(`(?i)("` + name + `"\s*:\s*")(?:[^"\\]|\\.)+`), "${1}[redacted]"},
		{regexp.MustCompile(`(?i)(\\+"` + name + `\\+"\s*:\s*\\+")(?:[^"\\]|\\\\\\"|\\\\[^"\\])+`), "${1}[redacted]"},
		// password: …, also where line ends are escaped; {password: …}.
		{regexp.MustCompile(`(?i)(` + name + `\s*:\s*)[|>][-+0-9]*\s*(?:\\n[ \t]+[^\\"\n]*)+`), "${1}[redacted]"},
		{
			regexp.MustCompile(`(?im)(^[ \t]*(?:- )?["']?` + name + `["']?[ \t]*:[ \t]+)[^\s{\[][^\n]*`),
			"${1}[redacted]",
		},
		{
			regexp.MustCompile(`(?im)(^[ \t]*(?:- )?["']?` + path + `["']?[ \t]*:[ \t]+["']?)[^\s{\["'/][^\n]*`),
			"${1}[redacted]",
		},
		{regexp.MustCompile(`(?i)([{,]\s*["']?` + name + `["']?\s*:\s*)[^\s"',}][^,}\n]*`), "${1}[redacted]"},
		// PASSWORD=…, --password=… and --password …
		{regexp.MustCompile(`(?i)(\b` + name + `=["']?)[^\s"'&,;\[]+`), "${1}[redacted]"},
		{regexp.MustCompile(`(?i)(--` + name + `\s+["']?)[^\s"'&,;\[-][^\s"'&,;]*`), "${1}[redacted]"},
		{regexp.MustCompile(`(?i)\b(` + name + `: ?["']?)[^\s"',;\[{]{6,}`), "${1}[redacted]"}, // in a sentence
		// Of clouds and forges, and of bootstrapping kubelets.
		{
			regexp.MustCompile(
				`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}|\bdckr_pat_[\w-]{16,}`),
			"[redacted: token]",
		},
		{regexp.MustCompile(bootstrapToken), "[redacted: token]"},
	}
}

// text takes the secrets out of s.
func (r *redactor) text(s string) string {
	for _, secret := range r.known {
		s = strings.ReplaceAll(s, secret, "[redacted]")
		if quoted, err := json.Marshal(secret); err == nil { // as it stands in JSON
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

// suspicious reports whether one of the forms, but for the one of bootstrapToken, can be in a line: without one of
// these words none is. It saves seconds for each megabyte.
func suspicious(line string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc([]string{
		"pass", "secret", "token", "bearer", "basic", "authorization", "cookie", "session", "key", "certificate",
		"dockerconfig", "auth", "credential",
		"eyj", "://", "akia", "asia", "gh", "glpat", "xox", "dckr",
	}, func(word string) bool { return strings.Contains(line, word) })
}

// bootstrapToken is how those of kubeadm look.
const bootstrapToken = `\b[a-z0-9]{6}\.[a-z0-9]{16}\b` //nolint:gosec // a form, and no token

// random reports whether a long run of characters looks drawn by chance, such as a key in base64. Digests and ids in
// hexadecimal digits, paths, and names of several words are kept.
func random(word string) bool {
	longest, upper, lower, digit := 0, 0, 0, 0
	for part := range strings.FieldsFuncSeq(word, func(c rune) bool { return c == '/' || c == '-' || c == '_' }) {
		longest = max(longest, len(part))
	}
	turns, last := 0, 0
	for _, c := range word {
		class := 0
		switch {
		case c >= 'A' && c <= 'Z':
			upper, class = upper+1, 1
		case c >= 'a' && c <= 'z':
			lower, class = lower+1, 2
		case c >= '0' && c <= '9':
			digit, class = digit+1, 3
		}
		if class != last {
			turns, last = turns+1, class
		}
	}
	if longest < 16 || upper == 0 || lower == 0 || digit == 0 {
		return false
	}
	return turns*4 > len(word) // by chance the class changes at more than every second character; in names hardly ever
}
