package kmod

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// modprobe is the administrator's configuration for modules: modprobe.d(5), read like kmod, and the kernel's command
// line. acceld passes modules to the kernel directly, so it must honour this configuration itself:
//
//   - "options" apply if the definition does not set the parameter;
//   - "install x /bin/false", or true, and the kernel's own module_blacklist= forbid the load;
//   - "blacklist x" does not: as with modprobe, it forbids a load by a device's alias, and acceld loads by name;
//   - other "install" commands, and "remove" commands, are not run.
type modprobe struct {
	rules []rule // in kmod's order: the first rule of a command wins, but for options the last value does
	// forbidden is the kernel's own list: module_blacklist= on its command line.
	forbidden []string
}

// rule is one line.
type rule struct {
	command string // "alias", "blacklist", "install", "options", "remove" or "softdep"
	name    string // normalized; a pattern for alias, install and softdep
	value   string
	file    string // base name; empty for the kernel's command line
	from    string // for people: file and line
}

// commandLine is the origin of rules from the kernel's command line.
const commandLine = "the kernel's command line"

// readModprobe reads the rules of a host. Files that cannot be read have none. The directories are kmod's (libkmod.c,
// kmod 34): a file hides the files of the same name in later directories, and all remaining files are then read in
// order of their names.
func readModprobe(h *host.Host) *modprobe {
	files := map[string]string{}
	for _, dir := range []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"} {
		for _, name := range h.Glob(dir+"/modprobe.d", "*.conf") {
			base := path.Base(name)
			if _, hidden := files[base]; !hidden && !strings.HasPrefix(base, ".") {
				files[base] = name
			}
		}
	}
	m := &modprobe{}
	for _, base := range slices.Sorted(maps.Keys(files)) {
		text, err := h.ReadFile(files[base]) // a link to /dev/null hides other files and cannot be read as a file
		if err == nil {
			m.rules = append(m.rules, parseModprobe(files[base], string(text))...)
		}
	}
	if text, err := h.ReadAttribute("/proc/cmdline"); err == nil {
		m.readCommandLine(text)
	}
	return m
}

// parseModprobe reads one file. A backslash at the end of a line continues it; like kmod, it ignores unknown
// commands.
func parseModprobe(name, text string) []rule {
	var out []rule
	begun := ""
	first := 1 // number of the first line of a continued line
	for i, line := range strings.Split(text, "\n") {
		part, more := strings.CutSuffix(line, `\`)
		if begun += part; more {
			continue
		}
		whole := begun
		begun = ""
		from := fmt.Sprintf("%s:%d", name, first)
		first = i + 2
		if strings.HasPrefix(whole, "#") {
			continue
		}
		command, rest := word(whole)
		subject, value := word(rest)
		if subject == "" {
			continue
		}
		r := rule{command: command, name: Normal(subject), value: value, file: path.Base(name), from: from}
		switch command {
		case "alias":
			r.name, r.value = aliasName(subject), Normal(value)
		case "blacklist", "install", "options", "remove", "softdep":
		default:
			continue
		}
		out = append(out, r)
	}
	return out
}

// word splits the first word off a line.
func word(line string) (first, rest string) {
	line = strings.TrimLeft(line, " \t")
	i := strings.IndexAny(line, " \t")
	if i < 0 {
		return strings.TrimRight(line, "\r"), ""
	}
	return line[:i], strings.Trim(line[i:], " \t\r")
}

// aliasName normalizes a pattern like a module name, except within brackets, where a dash denotes a range.
func aliasName(pattern string) string {
	depth := 0
	return strings.Map(func(r rune) rune {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case '-':
			if depth <= 0 {
				return '_'
			}
		}
		return r
	}, pattern)
}

// readCommandLine adds the rules of the kernel's command line: "<module>.<parameter>=<value>" and
// "modprobe.blacklist=" are kmod's; "module_blacklist=" is the kernel's own (kernel/module/main.c), and its last
// occurrence wins.
func (m *modprobe) readCommandLine(text string) {
	for _, a := range splitArguments(text) {
		module, parameter, dotted := strings.Cut(a.name, ".")
		switch {
		case a.name == "--": // the rest is for init
			return
		case a.name == "module_blacklist":
			m.forbidden = strings.Split(a.value, ",")
		case a.name == "modprobe.blacklist":
			for _, name := range strings.Split(a.value, ",") {
				m.rules = append(m.rules, rule{command: "blacklist", name: Normal(name), from: commandLine})
			}
		case dotted && module != "" && parameter != "":
			m.rules = append(m.rules, rule{
				command: "options", name: Normal(module), value: a.text(),
				from: commandLine,
			})
		}
	}
}

// argument is one word of a kernel's argument string.
type argument struct {
	name, value string
	bare        bool // without "="
}

// text is a module parameter as an option: its name without the module's, and its value.
func (a argument) text() string {
	_, name, _ := strings.Cut(a.name, ".")
	if a.bare {
		return name
	}
	return name + `="` + a.value + `"`
}

// splitArguments splits like the kernel (next_arg, lib/cmdline.c): at white space outside double quotes. It removes
// quotes around a value or around a whole argument.
func splitArguments(text string) []argument {
	var out []argument
	const space = " \t\r\n"
	for text = strings.TrimLeft(text, space); text != ""; text = strings.TrimLeft(text, space) {
		quoted, end := false, len(text)
		for i := range len(text) {
			if text[i] == '"' {
				quoted = !quoted
			} else if !quoted && strings.ContainsRune(space, rune(text[i])) {
				end = i
				break
			}
		}
		one := text[:end]
		text = text[end:]
		name, value, has := strings.Cut(unquoted(one), "=")
		out = append(out, argument{name: name, value: unquoted(value), bare: !has})
	}
	return out
}

// unquoted removes the quotes around a text; the closing one may be missing.
func unquoted(text string) string {
	if inner, ok := strings.CutPrefix(text, `"`); ok {
		return strings.TrimSuffix(inner, `"`)
	}
	return text
}

// first returns the first rule of a command that matches a module; the name in the rule may be a pattern.
func (m *modprobe) first(command, name string) (rule, bool) {
	i := slices.IndexFunc(m.rules, func(r rule) bool { return r.command == command && fnmatch(r.name, Normal(name)) })
	if i < 0 {
		return rule{}, false
	}
	return m.rules[i], true
}

// fnmatch is fnmatch(3) without flags, as far as module names need it.
func fnmatch(pattern, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "[!", "[^"), name)
	return ok && err == nil
}

// veto says what forbids loading a module by name; nil if nothing does.
func (m *modprobe) veto(name string) *accel.Problem {
	// The kernel compares normalized names.
	if slices.Contains(m.forbidden, Normal(name)) {
		return accel.Problemf(accel.Blacklisted, "module %q is forbidden by module_blacklist on %s", Normal(name),
			commandLine)
	}
	r, ok := m.first("install", name)
	if !ok {
		return nil
	}
	program, _ := word(r.value)
	if base := path.Base(program); base == "false" || base == "true" || base == ":" || r.value == "exit 1" ||
		r.value == "exit 0" {
		return accel.Problemf(accel.Blacklisted, `module %q is forbidden by "install %s %s" in %s`, Normal(name),
			r.name, r.value, r.from)
	}
	return nil
}

// remarks describes, for people, the rules for a module that acceld does not follow.
func (m *modprobe) remarks(name string) []string {
	var out []string
	if i := slices.IndexFunc(m.rules, func(r rule) bool {
		return r.command == "blacklist" &&
			r.name == Normal(name)
	}); i >= 0 {
		out = append(out, "blacklisted in "+m.rules[i].from+", which forbids the load for a device and not by name")
	}
	for _, command := range []string{"install", "remove"} {
		if r, ok := m.first(command, name); ok && m.veto(name) == nil {
			out = append(out, fmt.Sprintf("the %s command in %s is not run", command, r.from))
		}
	}
	return out
}

// alias returns the modules that a name stands for: on Debian, a module and its file may have different names.
func (m *modprobe) alias(name string) []string {
	var out []string
	for _, r := range m.rules {
		if r.command == "alias" && r.value != "" && r.value != "off" && fnmatch(r.name, Normal(name)) {
			out = append(out, r.value)
		}
	}
	return out
}

// soft returns the soft dependencies of a module. Kmod reads those of the module files from depmod's modules.softdep,
// in the order of file names with modprobe.d, and the first rule wins. A rule of the administrator therefore applies
// if its file sorts before modules.softdep, or if the module has no soft dependencies.
func (m *modprobe) soft(name string, i *Info) (before, after []string) {
	if r, ok := m.first("softdep", name); ok && (r.file < "modules.softdep" ||
		len(i.softBefore)+len(i.softAfter) == 0) {
		return softDependencies(r.value)
	}
	return i.softBefore, i.softAfter
}

// Parameter is one parameter of a module as it is given to the kernel, and where it comes from.
type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// From is "definition", or the file and line of modprobe.d, or "the kernel's command line".
	From string `json:"from"`
}

// fromDefinition is the origin of the definition's parameters.
const fromDefinition = "definition"

// merge combines the definition's parameters with the administrator's, sorted by name. The definition wins if both
// set a parameter.
func (m *modprobe) merge(name string, definition map[string]string) []Parameter {
	words := map[string]Parameter{}
	for _, r := range m.rules {
		if r.command != "options" || r.name != Normal(name) {
			continue
		}
		for _, a := range splitArguments(r.value) {
			if a.bare {
				a.value = "1" // the kernel's meaning of a boolean without a value (param_set_bool, kernel/params.c)
			}
			words[Normal(a.name)] = Parameter{a.name, a.value, r.from}
		}
	}
	for parameter, value := range definition {
		words[Normal(parameter)] = Parameter{parameter, value, fromDefinition}
	}
	return slices.SortedFunc(maps.Values(words), func(a, b Parameter) int { return cmp.Compare(a.Name, b.Name) })
}
