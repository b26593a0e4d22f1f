package accel

import "encoding/json"

// Answer is what was said of something; the zero one is that nobody knows, which is not "no". In JSON that is null.
type Answer[T comparable] struct {
	Value T
	Known bool
}

// Known is an answer.
func Known[T comparable](v T) Answer[T] { return Answer[T]{v, true} }

// Is reports whether the answer is known to be v.
func (a Answer[T]) Is(v T) bool { return a == Known(v) }

// Or is the answer, or v while nobody knows.
func (a Answer[T]) Or(v T) T {
	if a.Known {
		return a.Value
	}
	return v
}

// MarshalJSON writes the value, or null.
func (a Answer[T]) MarshalJSON() ([]byte, error) {
	if !a.Known {
		return []byte("null"), nil
	}
	return json.Marshal(a.Value)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Answer[T]) UnmarshalJSON(b []byte) error {
	var v *T
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*a = Answer[T]{}
	if v != nil {
		*a = Known(*v)
	}
	return nil
}
