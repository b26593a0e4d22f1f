package main

import (
	"encoding/json"
	"io"
	"sync"

	"github.com/acceld/acceld/accel"
)

// voice writes lines, each in one write.
type voice struct {
	mu  sync.Mutex
	out io.Writer
	err error
}

func newVoice(out io.Writer) *voice { return &voice{out: out} }

// line writes one line. The first error is kept and stops the output, because nobody reads it any more.
func (v *voice) line(l accel.ProbeLine) {
	b, err := json.Marshal(l)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil && v.err == nil {
		_, err = v.out.Write(append(b, '\n'))
	}
	if v.err == nil {
		v.err = err
	}
}

// deaf returns the error because of which nobody reads the output any more; nil if there was none.
func (v *voice) deaf() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}
