package engine

import (
	"path"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
)

// StageDir is a placeholder in staged files for the directory into which they are put.
const StageDir = "/.acceld-stage."

// Stage returns copies of the files of a configuration for the runtime's own program to read, under names below one
// directory: for containerd "0.toml", whose imports point to the copies; for CRI-O "crio.conf" and "crio.conf.d". It
// returns none for a configuration that the runtime does not read directly, such as a template.
func Stage(files Files, e accel.ContainerEngine) (map[string][]byte, error) {
	c, p := Read(files, e)
	if p != nil {
		return nil, p
	}
	staged := map[string][]byte{}
	if e.Name == "cri-o" {
		staged["crio.conf"] = nil
		staged["crio.conf.d/.keep/none"] = nil // the directory must exist
		for i, name := range c.Files {
			data, _, p := read(files, name)
			if p != nil {
				return nil, p
			}
			if name == c.Top {
				staged["crio.conf"] = data
			} else {
				staged["crio.conf.d/"+strconv.Itoa(1000+i)] = data
			}
		}
		return staged, nil
	}
	if c.merge == nil || rendered(e.Layout) || e.Layout != "" {
		return nil, nil
	}
	number := map[string]int{}
	for i, f := range c.merge.files {
		number[f.name] = i
	}
	for i, f := range c.merge.files {
		imports, p := importsOf(files, f)
		if p != nil {
			return nil, p
		}
		var moved []string
		for _, name := range imports {
			moved = append(moved, path.Join(StageDir, strconv.Itoa(number[name])+".toml"))
		}
		data := f.data
		d, err := parseDocument(data)
		if err != nil {
			return nil, err
		}
		if it, ok := d.find(false, "imports"); ok {
			data = d.replace(it.value, it.end, `["`+strings.Join(moved, `", "`)+`"]`)
			if len(moved) == 0 {
				data = d.replace(it.value, it.end, `[]`)
			}
		}
		staged[strconv.Itoa(i)+".toml"] = data
	}
	return staged, nil
}
