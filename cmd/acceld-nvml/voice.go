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

// line writes one line. The first error stays: nobody listens any more.
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

// deaf is why nobody listens any more; nil while somebody does.
func (v *voice) deaf() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}
