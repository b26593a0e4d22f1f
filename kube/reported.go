package kube

// Reported is the last error that a loop has logged. It lets the loop log an error once and not at each attempt.
type Reported struct{ last string }

// New reports whether err differs from the last one. No error is not new.
func (r *Reported) New(err error) bool {
	last := r.last
	r.last = ""
	if err != nil {
		r.last = err.Error()
	}
	return r.last != "" && r.last != last
}
