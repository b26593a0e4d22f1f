package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/acceld/acceld/accel"
)

// readDocker reads the daemon's file. CDI exists since 25.0 and is on by default since 28.2. Before that, and if the
// version is not known, it is off by default. features.cdi overrides the default.
func readDocker(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	order, known := compare(e.Version, "28.2")
	c := &Config{
		Name: e.Name, Layout: e.Layout, Top: cmp.Or(e.Config, "/etc/docker/daemon.json"),
		SpecDirs: defaultSpecDirs(), CDI: known && order >= 0,
	}
	data, there, p := read(files, c.Top)
	if p != nil {
		return nil, p
	}
	tree := map[string]any{}
	if there {
		c.Files = []string{c.Top}
		data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte(byteOrderMark))) // as the daemon does
		if len(data) > 0 {
			if err := json.Unmarshal(data, &tree); err != nil {
				return nil, accel.Problemf(accel.RuntimeConfigInvalid, "cannot use %q: %s", c.Top, jsonError(data, err))
			}
		}
	}
	for k, v := range map[string]any{"features": map[string]any{}, "cdi-spec-dirs": []any{}} {
		if have, ok := tree[k]; ok && fmt.Sprintf("%T", have) != fmt.Sprintf("%T", v) {
			return nil, accel.Problemf(accel.RuntimeConfigInvalid, "cannot use %q: %s is not of the right type", c.Top,
				k)
		}
	}
	if on, ok := table(tree, "features")["cdi"].(bool); ok {
		c.CDI = on
	}
	if e.CDI != "" {
		c.CDI = e.CDI == "on"
	}
	c.brought(e.Version, "25.0")
	if dirs, ok := list(tree["cdi-spec-dirs"]); ok && len(dirs) > 0 {
		c.SpecDirs = dirs
	}
	if len(e.SpecDirs) > 0 {
		c.SpecDirs = e.SpecDirs
	}
	c.rest = []any{without(without(tree, []string{"features"}, "cdi"), nil, "cdi-spec-dirs")}
	return c, nil
}

func jsonError(data []byte, err error) string {
	var s *json.SyntaxError
	if errors.As(err, &s) {
		at := min(int(s.Offset), len(data))
		return fmt.Sprintf("line %d: %v", 1+bytes.Count(data[:at], []byte("\n")), err)
	}
	return err.Error()
}

func dockerChanges(files Files, _ accel.ContainerEngine, now *Config, dir string) []Change {
	data, there, p := read(files, now.Top)
	if p != nil {
		return nil
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}\n")
	}
	var err error
	if !slices.ContainsFunc(now.SpecDirs, samePlace(dir)) {
		data, err = setDirs(data, now.SpecDirs, dir)
	}
	if err == nil && !now.CDI {
		data, err = setFeature(data)
	}
	if err != nil {
		return nil
	}
	return []Change{one(files, now.Top, data, there)}
}

// setDirs adds a directory to cdi-spec-dirs: as the first element of the existing list, otherwise in a new list with
// the defaults.
func setDirs(data []byte, dirs []string, dir string) ([]byte, error) {
	all, err := members(data)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(all) {
		if m.name == "cdi-spec-dirs" && m.to-m.from > 2 && data[m.from] == '[' &&
			len(bytes.TrimSpace(data[m.from+1:m.to-1])) > 0 {
			return slices.Concat(data[:m.from+1], []byte(strconv.Quote(dir)+", "), data[m.from+1:]), nil
		}
	}
	text, err := json.Marshal(append(slices.Clone(dirs), dir))
	if err != nil {
		return nil, err
	}
	return setMember(data, "cdi-spec-dirs", string(text))
}

// setFeature sets features.cdi.
func setFeature(data []byte) ([]byte, error) {
	all, err := members(data)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(all) { // the last member of a name counts
		if m.name == "features" {
			inner, err := setMember(data[m.from:m.to], "cdi", "true")
			return slices.Concat(data[:m.from], inner, data[m.to:]), err
		}
	}
	return setMember(data, "features", `{"cdi": true}`)
}

// member is a member of a JSON object, with the position of its value.
type member struct {
	name     string
	from, to int
}

// members returns the members of the object in data.
func members(data []byte) ([]member, error) {
	offset := bytes.IndexByte(data, '{')
	if offset < 0 {
		return nil, errors.New("there is no object")
	}
	dec := json.NewDecoder(bytes.NewReader(data[offset:]))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	var all []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
		to := offset + int(dec.InputOffset())
		all = append(all, member{fmt.Sprint(name), to - len(raw), to})
	}
	return all, nil
}

// setMember sets a member of the object in data and keeps every other byte. It replaces an existing value, or
// inserts the member first, formatted like the others.
func setMember(data []byte, name, value string) ([]byte, error) {
	start := bytes.IndexByte(data, '{')
	all, err := members(data)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(all) {
		if m.name == name {
			return slices.Concat(data[:m.from], []byte(value), data[m.to:]), nil
		}
	}
	text := `"` + name + `": ` + value
	rest := data[start+1:]
	space := rest[:len(rest)-len(bytes.TrimLeft(rest, " \t\r\n"))]
	switch {
	case len(all) > 0:
		if len(space) == 0 {
			return slices.Concat(data[:start+1], []byte(text+", "), rest), nil
		}
		return slices.Concat(data[:start+1], space, []byte(text+","), rest), nil
	case bytes.IndexByte(data[:start], '\n') < 0 && len(bytes.TrimSpace(data[:start])) == 0 &&
		bytes.HasSuffix(data, []byte("}\n")):
		return slices.Concat(data[:start+1], []byte("\n    "+text+"\n"), rest[len(space):]), nil // an empty object
	}
	return slices.Concat(data[:start+1], []byte(text), rest[len(space):]), nil
}
