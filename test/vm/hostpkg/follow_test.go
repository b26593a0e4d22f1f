package hostpkg

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/test/vm/progress"
)

// TestFollow gives it an apt-get's words in pieces that end anywhere.
func TestFollow(t *testing.T) {
	const words = "Reading package lists...\n0 upgraded, 3 newly installed, 0 to remove and 7 not upgraded.\n" +
		"Need to get 1,012 MB/2,000 MB of archives.\nGet:1 mirror bookworm/main amd64 a amd64 1.0 [500 MB]\nGet:2 mirror bookworm/main amd64 b amd64 1.0 [900 kB]\n"
	var step *progress.Step
	var fetched, set string
	err := progress.New(&strings.Builder{}).Count("installing", func(s *progress.Step) error {
		step = s
		f := Follow(s)
		for i := range words {
			if _, err := f.Write([]byte{words[i]}); err != nil {
				return err
			}
		}
		fetched = s.String()
		_,
			err := f.Write(
			[]byte(
				"Selecting previously unselected package a.\nUnpacking a (1.0) ...\nSetting up a (1.0) ...\nSetting up b (1.0) ...\n"))
		set = s.String()
		return err
	})
	if err != nil || step == nil {
		t.Fatal(err)
	}
	if want := "installing: 500 of 1012 MB fetched"; !strings.HasPrefix(fetched, want) {
		t.Errorf("got %q, want %q", fetched, want)
	}
	if want := "installing: 2 of 3 packages set up"; !strings.HasPrefix(set, want) {
		t.Errorf("got %q, want %q", set, want)
	}
}
