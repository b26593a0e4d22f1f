package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// items reads the answer to a request for a list. It hands over the objects one by one as they arrive: a page of nodes
// takes megabytes.
type items struct {
	// take is called with each object. The text is valid until take returns.
	take func(json.RawMessage)
	meta metav1.ListMeta
}

// UnmarshalJSON reads an answer that has arrived as a whole.
func (i *items) UnmarshalJSON(b []byte) error { return i.readStream(bytes.NewReader(b)) }

// readStream reads an answer as it arrives.
func (i *items) readStream(r io.Reader) error {
	d := json.NewDecoder(r)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return unexpected(t, "a list", err)
	}
	for d.More() {
		field, err := d.Token()
		if err != nil {
			return err
		}
		switch field {
		case "metadata":
			err = d.Decode(&i.meta)
		case "items":
			err = i.each(d)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return fmt.Errorf("cannot read %v: %w", field, err)
		}
	}
	_, err := d.Token()
	return err
}

// each reads the array of objects; null is an empty one.
func (i *items) each(d *json.Decoder) error {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		if t == nil && err == nil {
			return nil
		}
		return unexpected(t, "an array", err)
	}
	var raw json.RawMessage // its memory is reused
	for d.More() {
		if err := d.Decode(&raw); err != nil {
			return err
		}
		i.take(raw)
	}
	_, err := d.Token()
	return err
}

// unexpected returns err, or an error about a token that is not the wanted one.
func unexpected(t json.Token, want string, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("got %v, want %s", t, want)
}
