package detect

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/acceld/acceld/host"
)

// unitDirs are where systemd looks for units, highest precedence first (systemd.unit(5)).
func unitDirs() []string {
	return []string{
		"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
		"/lib/systemd/system",
	}
}

// unitFiles returns the file of a unit and its drop-ins in the order in which they take effect: by name, and of two
// with the same name only the one in the directory of the higher precedence.
func unitFiles(h *host.Host, name string) []string {
	var main string
	dropins := map[string]string{}
	for _, dir := range slices.Backward(unitDirs()) {
		if file := path.Join(dir, name); h.Exists(file) {
			main = file
		}
		for _, file := range h.Glob(path.Join(dir, name+".d"), "*.conf") {
			dropins[path.Base(file)] = file
		}
	}
	if main == "" {
		return nil
	}
	files := []string{main}
	for _, base := range slices.Sorted(maps.Keys(dropins)) {
		files = append(files, dropins[base])
	}
	return files
}

// unitCommand returns the command with which systemd would start a service, and whether there is one.
func unitCommand(h *host.Host, name string) (command, bool) {
	c := command{env: map[string]string{}}
	var exec string
	var files []string // of environment; they win over the unit's own variables (systemd.exec(5))
	for _, file := range unitFiles(h, name) {
		text, err := h.ReadAttribute(file)
		if err != nil {
			continue // systemd would ignore it, too
		}
		for _, s := range serviceSettings(text) {
			switch s.name {
			case "ExecStart":
				exec = s.value // an empty one forgets those before it
			case "Environment":
				maps.Copy(c.env, assignments(strings.Join(fields(s.value), "\n")))
			case "EnvironmentFile":
				files = append(files, strings.TrimPrefix(s.value, "-"))
			}
		}
	}
	for _, file := range files {
		if text, err := h.ReadAttribute(file); err == nil && usable(file) {
			maps.Copy(c.env, assignments(text))
		}
	}
	c.args = expand(fields(exec), c.env)
	return c, len(c.args) > 0
}

// unitSetting is one line of a unit.
type unitSetting struct{ name, value string }

// serviceSettings returns the lines of the section [Service]. A backslash at the end of a line continues it.
func serviceSettings(text string) []unitSetting {
	var all []unitSetting
	service, before := false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue // even within a continued line
		}
		if rest, more := strings.CutSuffix(line, `\`); more {
			before += rest + " "
			continue
		}
		line, before = before+line, ""
		if strings.HasPrefix(line, "[") {
			service = line == "[Service]"
		} else if name, value, ok := strings.Cut(line, "="); ok && service {
			all = append(all, unitSetting{strings.TrimSpace(name), strings.TrimSpace(value)})
		}
	}
	return all
}

// fields splits text at white space outside quotation marks, and removes those. There are at most maxWords.
func fields(text string) []string {
	var all []string
	var word strings.Builder
	var quote rune
	begun := false
	end := func() {
		if begun && len(all) < maxWords {
			all = append(all, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range text {
		switch {
		case quote == 0 && unicode.IsSpace(r):
			end()
			continue
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		default:
			word.WriteRune(r)
		}
		begun = true
	}
	end()
	return all
}

var (
	bareVariable = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*$`)
	variable     = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)
)

// expand replaces variables as systemd does in a command line: a word "$NAME" becomes the words of the value, and
// "${NAME}" within a word becomes the value as it is.
func expand(args []string, env map[string]string) []string {
	var all []string
	for _, a := range args {
		if bareVariable.MatchString(a) {
			all = append(all, fields(env[a[1:]])...)
			continue
		}
		a = variable.ReplaceAllStringFunc(a, func(v string) string { return env[v[2:len(v)-1]] })
		if len(a) <= maxWord {
			all = append(all, a)
		}
	}
	return all[:min(len(all), maxWords)]
}
