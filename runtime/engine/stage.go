package engine

import "github.com/acceld/acceld/accel"

// StageDir is a placeholder in staged files for the directory into which they are put.
const StageDir = "/.acceld-stage."

// Stage returns copies of the files of a configuration for the runtime's own program to read, under the names that
// the Check of its [Row] expects below one directory. It returns none for a configuration that the runtime does not
// read directly, such as a template.
func Stage(files Files, e accel.ContainerEngine) (map[string][]byte, error) {
	row := RowOf(e.Name)
	if row.stage == nil {
		return nil, nil
	}
	c, p := row.read(files, e)
	if p != nil {
		return nil, p
	}
	return row.stage(files, c)
}
