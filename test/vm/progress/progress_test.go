package progress

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLogSaysHowFarAStepIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(&out)
		err := l.Count("building kubernetes", func(s *Step) error {
			s.AtMost("modules", 200)
			s.Add(120)
			time.Sleep(31 * time.Second)
			s.Of("packages", 2000)
			s.Set(500)
			time.Sleep(30 * time.Second)
			return errors.New("no space")
		})
		if err == nil {
			t.Error("the error of the step is lost")
		}
		want := `    0.0s  building kubernetes …
   30.0s  building kubernetes: 120 of at most 200 modules, 30s
   60.0s  building kubernetes: 500 of 2000 packages, 1m0s, about 1m27s left
   61.0s  building kubernetes: failed in 61.0s
`
		if out.String() != want {
			t.Errorf("got\n%swant\n%s", out.String(), want)
		}
	})
}

func TestNobodyKnowsTheTotal(t *testing.T) {
	s := &Step{name: "installing", began: time.Now()}
	if got := s.String(); got != "installing: 0s" {
		t.Errorf("without a count: %q", got)
	}
	s.Of("packages", 0)
	s.Add(3)
	if got := s.String(); !strings.Contains(got, "3 packages") || strings.Contains(got, "left") {
		t.Errorf("without a total: %q", got)
	}
	var silent *Log
	if err := silent.Count("quiet", func(s *Step) error { s.Of("x", 1); s.Add(1); s.Set(1); return nil }); err != nil {
		t.Error(err)
	}
}
