package docs

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/agent/loop"
)

// TestPictures holds pictures to what pages need: each is shown somewhere, says in words what is on it, and is small.
func TestPictures(t *testing.T) {
	const most = 300 << 10
	shown := map[string]bool{}
	for name := range pages(t) {
		for _, m := range regexp.MustCompile(`!\[([^\]]*)\]\(([^)]+)\)`).FindAllStringSubmatch(read(t, name), -1) {
			if len(strings.Fields(m[1])) < 5 {
				t.Errorf("%s: %q has no text for those who cannot see it", name, m[2])
			}
			shown[filepath.Join(filepath.Dir(name), m[2])] = true
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "docs", "pictures"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d pictures: %v", len(entries), err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Join("docs", "pictures", e.Name()); !shown[name] || info.Size() > most {
			t.Errorf("%s: %d bytes, shown by a page: %v", name, info.Size(), shown[name])
		}
	}
}

// TestDrawings shows the drawers of pictures a small table.
func TestDrawings(t *testing.T) {
	rooms := map[string][]string{"cmd": {"agent", "host", "accel"}, "agent": {"host", "accel"}, "host": {"accel"}, "accel": {}}
	want := [][]string{{"cmd"}, {"agent"}, {"host"}, {"accel"}}
	if diff := cmp.Diff(want, floors(rooms)); diff != "" {
		t.Errorf("floors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"agent"}, direct(rooms, "cmd")); diff != "" {
		t.Errorf("direct (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"one two", "three", "longerthanthat"}, broken("one  two three longerthanthat", 8)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	for _, p := range []string{drawStates(), drawRooms()} {
		if err := xml.Unmarshal([]byte(p), new(struct{})); err != nil {
			t.Errorf("%v:\n%s", err, p)
		}
	}
	for _, r := range loop.States() {
		if !strings.Contains(drawStates(), ">"+string(r.State)+"<") {
			t.Errorf("the picture has no state %s", r.State)
		}
	}
}

// TestCell shows cells what tables of Markdown cannot have.
func TestCell(t *testing.T) {
	for text, want := range map[string]string{
		"a | b":              `a \| b`,
		"x < y":              "x &lt; y",
		"`kinds.<kind>` < 1": "`kinds.<kind>` &lt; 1",
	} {
		if got := cell(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
