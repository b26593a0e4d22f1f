package accel

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Companion is a daemon that belongs to a driver, such as one that keeps the driver's state while nobody has a device
// open, or that manages the switches between devices. It comes with the driver's user space. It starts when the modules
// are live, before the definition's check, runs as a service of the host's systemd, which restarts it when it fails,
// and is stopped before the driver is unloaded or replaced. While it does not run, the driver does not serve, unless it
// is optional.
type Companion struct {
	// Name is a word for people, such as "persistence"; the service is [CompanionUnit].
	Name string `json:"name"`
	// Program is the name of the program, which is searched for like [Programs]. If the user space has none, the
	// companion is not needed.
	Program string `json:"program"`
	// Args may contain "{{.Root}}", the root of the user space as a path on the host, "{{.DriverVersion}}", and
	// "{{.Config}}", the path of the copy of Config.
	Args []string `json:"args,omitempty"`
	// Files are what the program reads: paths below the root of the user space, such as "usr/share/nvidia/nvswitch/*",
	// whose last element may be a pattern (path.Match). They are kept under the same paths.
	Files []string `json:"files,omitempty"`
	// Config is one of the files, with a line "NAME=value" for each setting. The program gets a copy with the Settings.
	Config string `json:"config,omitempty"`
	// Settings are lines of that copy, "NAME=value" each. They replace the lines with that name, or are added. They may
	// contain what Args may.
	Settings []string `json:"settings,omitempty"`
	// Where is a pattern (path.Match) of the host's files below /dev, /proc and /sys. On hosts without a match the
	// companion is not needed.
	Where string `json:"where,omitempty"`
	// Forks says that the program goes to the background when it is ready. Otherwise it stays in the foreground.
	Forks bool `json:"forks,omitempty"`
	// Directory is the name of a directory in /run that is made for the program, and removed when it has ended.
	Directory string `json:"directory,omitempty"`
	// Ready is a file below /run that is there once the program is ready; empty if it is ready once it runs.
	Ready string `json:"ready,omitempty"`
	// Optional says that the driver serves without the companion too. acceld tries to start it, and the status says why
	// it does not run.
	Optional bool `json:"optional,omitempty"`
}

// companionPrefix begins the name of every companion's service.
const companionPrefix = "acceld-companion-"

// CompanionUnit is the name of a companion's service. With the name "*" it is a pattern for all those of a kind, and
// with kind "*", too, for those of all kinds.
func CompanionUnit(kind, name string) string { return companionPrefix + kind + "." + name + ".service" }

// CompanionKind returns the kind of a companion's service; empty for any other unit.
func CompanionKind(unit string) string {
	rest, ours := strings.CutPrefix(unit, companionPrefix)
	kind, name, dotted := strings.Cut(rest, ".")
	if !ours || !dotted || !strings.HasSuffix(name, ".service") {
		return ""
	}
	return kind
}

// CompanionOf returns the kind of the companion to which a process belongs, from the text of /proc/<pid>/cgroup; empty
// for any other process.
func CompanionOf(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		name := fields[len(fields)-1]
		for strings.HasPrefix(name, "/../") { // seen from a control group of its own
			name = name[len("/.."):]
		}
		unit, inSlice := strings.CutPrefix(name, "/system.slice/")
		unit, _, _ = strings.Cut(unit, "/")
		if kind := CompanionKind(unit); inSlice && kind != "" {
			return kind
		}
	}
	return ""
}

// CompanionHave is a companion that is needed.
type CompanionHave struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Runs is true if its program, of the user space that serves, runs and is ready.
	Runs bool `json:"runs"`
	// Why is why it does not run, for people.
	Why string `json:"why,omitempty"`
}

// The bounds of a companion.
const (
	companions     = 8
	companionWords = 32
	companionText  = 256
)

// State says whether the companion runs, in words.
func (c CompanionHave) State() string {
	switch {
	case c.Runs:
		return "runs"
	case c.Why != "":
		return "does not run: " + c.Why
	}
	return "does not run"
}

// CompanionProblems returns the errors in companions as they are configured, each sentence beginning with the field.
func CompanionProblems(all []Companion) []string {
	var out []string
	if len(all) > companions {
		return []string{fmt.Sprintf("there are %d, at most %d", len(all), companions)}
	}
	word := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)
	program := regexp.MustCompile(`^[A-Za-z0-9_][-A-Za-z0-9_.+]{0,63}$`)
	seen := map[string]bool{}
	for i, c := range all {
		bad := func(format string, args ...any) {
			out = append(out, fmt.Sprintf("[%d].", i)+fmt.Sprintf(format, args...))
		}
		if !word.MatchString(c.Name) || seen[c.Name] {
			bad("name: %q is not a word of a-z, 0-9 and \"-\", or another one has it", c.Name)
		}
		seen[c.Name] = true
		if !program.MatchString(c.Program) {
			bad("program: %q is not the name of a program", c.Program)
		}
		if c.Directory != "" && !program.MatchString(c.Directory) {
			bad("directory: %q is not the name of a directory in /run", c.Directory)
		}
		if len(c.Args) > companionWords || len(c.Files) > companionWords || len(c.Settings) > companionWords {
			bad("args, files, settings: more than %d", companionWords)
		}
		for _, arg := range c.Args {
			if !c.plain(arg) {
				bad("args: %.80q is too long, has a line break, or has another template than .Root, .DriverVersion and, "+
					"with config, .Config", arg)
			}
		}
		for _, text := range c.configProblems() {
			bad("%s", text)
		}
		for _, file := range c.Files {
			if !inside(file) {
				bad("files: %.80q is not a path below the root of a user space with a pattern at most at its end", file)
			}
		}
		if c.Where != "" && !below(c.Where, "/dev/", "/proc/", "/sys/") {
			bad("where: %.80q is not a path or pattern below /dev, /proc or /sys", c.Where)
		}
		if c.Ready != "" && !(below(c.Ready, "/run/") && !strings.ContainsAny(c.Ready, `*?[\`)) {
			bad("ready: %.80q is not a file below /run", c.Ready)
		}
	}
	return out
}

// plain reports whether a text has a bounded length, one line, and only the templates that a companion has.
func (c Companion) plain(text string) bool {
	known := []string{"{{.Root}}", "", "{{.DriverVersion}}", ""}
	if c.Config != "" {
		known = append(known, "{{.Config}}", "")
	}
	rest := strings.NewReplacer(known...).Replace(text)
	return len(text) <= companionText && !strings.ContainsAny(rest, "\x00\n\r") && !strings.Contains(rest, "{{")
}

// configProblems returns the errors in the settings of a companion, each sentence beginning with the field.
func (c Companion) configProblems() (out []string) {
	kept := slices.ContainsFunc(c.Files, func(pattern string) bool {
		ok, err := path.Match(pattern, c.Config)
		return ok && err == nil
	})
	if c.Config != "" && (!inside(c.Config) || !kept || strings.ContainsAny(c.Config, `*?[\`)) {
		out = append(out, fmt.Sprintf("config: %.80q is not the path of one of the files", c.Config))
	}
	if c.Config == "" && len(c.Settings) > 0 {
		out = append(out, "settings: are lines of a copy of config, and there is none")
	}
	line := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*=`)
	for _, text := range c.Settings {
		if !line.MatchString(text) || !c.plain(text) {
			out = append(out, fmt.Sprintf("settings: %.80q is not NAME=value, or has another template than args may have",
				text))
		}
	}
	return out
}

// inside reports whether a file of a companion is a clean relative path whose last element may be a pattern.
func inside(file string) bool {
	_, err := path.Match(file, "")
	return err == nil && file == path.Clean(file) && !path.IsAbs(file) && file != "." && len(file) <= companionText &&
		file != ".." && !strings.HasPrefix(file, "../") && !strings.ContainsAny(path.Dir(file), `*?[\`)
}

// below reports whether a name is a clean pattern in one of the directories.
func below(name string, dirs ...string) bool {
	_, err := path.Match(name, "")
	return err == nil && name == path.Clean(name) && len(name) <= companionText &&
		slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(name, dir) })
}
