package systemd

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/google/go-cmp/cmp"
)

// TestLogLines: text has a time for a terminal and a priority for the journal, and JSON is JSON.
func TestLogLines(t *testing.T) {
	never := func() bool { return false }
	for name, tt := range map[string]struct {
		format LogFormat
		read   bool
		want   func(string) bool
	}{
		"a terminal": {LogAuto, false, func(s string) bool {
			return strings.HasPrefix(s, "time=") && strings.Contains(s, `level=WARN msg="step failed" part=x g.kind=npu`)
		}},
		"the journal, without its socket": {LogAuto, true, func(s string) bool {
			return s == "<4>level=WARN msg=\"step failed\" part=x g.kind=npu\n"
		}},
		"text for the journal": {LogText, true, func(s string) bool { return strings.HasPrefix(s, "<4>level=WARN") }},
		"json": {LogJSON, false, func(s string) bool {
			var v map[string]any
			return json.Unmarshal([]byte(s), &v) == nil && v["level"] == "WARN" && v["time"] != nil
		}},
		"json for the journal": {LogJSON, true, func(s string) bool {
			var v map[string]any
			rest, ok := strings.CutPrefix(s, "<4>")
			return ok && json.Unmarshal([]byte(rest), &v) == nil && v["msg"] == "step failed" && v["time"] == nil
		}},
	} {
		var out bytes.Buffer
		log := newLog(LogOptions{To: &out, Format: tt.format}, tt.read, never, nil)
		log.Debug("not at this level")
		log.With("part", "x").WithGroup("g").Warn("step failed", "kind", "npu")
		if !tt.want(out.String()) {
			t.Errorf("%s: %q", name, out.String())
		}
	}
}

// TestLogJournal: the journal gets the message with its attributes, the priority, and each attribute as a field; what
// it refuses is written as a line.
func TestLogJournal(t *testing.T) {
	type entry struct {
		Message  string
		Priority journal.Priority
		Fields   map[string]string
	}
	var got []entry
	var out bytes.Buffer
	refuse := false
	log := newLog(LogOptions{To: &out}, true, func() bool { return true },
		func(message string, p journal.Priority, fields map[string]string) error {
			if refuse {
				return errors.New("no")
			}
			got = append(got, entry{message, p, maps.Clone(fields)})
			return nil
		})
	log.Debug("not at this level")
	log.Info("agent starts", "hostRoot", "/host", "kinds", 3)
	log.With("kind", "npu").WithGroup("driver").Error("cannot load", "error", errors.New("two\nlines"), slog.Group("of", "a-b", true))
	want := []entry{
		{"agent starts hostRoot=/host kinds=3", journal.PriInfo, map[string]string{"ACCELD_HOST_ROOT": "/host", "ACCELD_KINDS": "3"}},
		{`cannot load kind=npu driver.error="two\nlines" driver.of.a-b=true`, journal.PriErr, map[string]string{
			"ACCELD_KIND": "npu", "ACCELD_DRIVER_ERROR": "two\nlines", "ACCELD_DRIVER_OF_A_B": "true",
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	refuse = true
	log.With("kind", "npu").Warn("step failed")
	if out.String() != "<4>level=WARN msg=\"step failed\" kind=npu\n" {
		t.Errorf("what the journal refuses: %q", out.String())
	}
	if name := field(strings.Repeat("x", 100)); len(name) != 64 {
		t.Errorf("a field name of %d characters", len(name))
	}
}
