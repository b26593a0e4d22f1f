package accel

import "encoding/json"

// Answer is a value that may not be known. The zero Answer is not known, which is not "no"; in JSON it is null.
type Answer[T comparable] struct {
	Value T
	Known bool
}

// Known returns an answer that is known.
func Known[T comparable](v T) Answer[T] { return Answer[T]{v, true} }

// Is reports whether the answer is known, and is v.
func (a Answer[T]) Is(v T) bool { return a == Known(v) }

// Or returns the value, or v if it is not known.
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
