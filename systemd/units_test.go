package systemd

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestUnitsWithoutABus(t *testing.T) {
	dir := t.TempDir()
	u := NewUnits(func(name string) (string, error) { return filepath.Join(dir, name), nil })
	if err := u.Restart(t.Context(), "crio.service"); err == nil ||
		!strings.Contains(err.Error(), `cannot restart "crio.service"`) {
		t.Errorf("restart: %v", err)
	}
}

func TestFirstError(t *testing.T) {
	const journal = `{"MESSAGE":"Starting crio","PRIORITY":"6"}
{"MESSAGE":[1,2],"PRIORITY":"3"}
not json
{"MESSAGE":"time=x level=fatal msg=\"toml: line 3\"","PRIORITY":"6"}
{"MESSAGE":"Failed with result exit-code","PRIORITY":"3"}
`
	if got, want := FirstError([]byte(journal)), `time=x level=fatal msg="toml: line 3"`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := FirstError([]byte(`{"MESSAGE":"all is well","PRIORITY":"6"}`)); got != "" {
		t.Errorf("got %q", got)
	}
}
