package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// schema must change when the meaning of a record changes.
const schema = 1

// The operations of records.
const (
	opSchema = "ledger" // the first line
	opChange = "change" // Path is about to become Wrote
	opDone   = "done"   // Path has become it
	opUndone = "undone" // there is nothing left to undo at Path
	opTimes  = "times"  // the directory Path is about to change for the first time
	opTimed  = "timed"  // its time need not be restored any more
	opNote   = "note"
	opForget = "forget"
)

// record is one line of the journal.
type record struct {
	Op     string    `json:"op"`
	Schema int       `json:"schema,omitempty"`
	Time   time.Time `json:"time,omitzero"`
	BootID string    `json:"bootID,omitempty"`
	Path   string    `json:"path,omitempty"`
	// Prior is what was there before acceld: with the first change of a path, and with opUndone if that is there again.
	Prior *State `json:"prior,omitempty"`
	Wrote *State `json:"wrote,omitempty"`
	// Listing is a digest of a directory's names and Mtime its time, both from before the first change in it.
	Listing string    `json:"listing,omitempty"`
	Mtime   time.Time `json:"mtime,omitzero"`
	Note    *Note     `json:"note,omitempty"`
}

// line is a record with the SHA-256 of its bytes, the first 16 hexadecimal digits.
type line struct {
	Sum    string          `json:"sum"`
	Record json.RawMessage `json:"record"`
}

func lineSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func encode(records ...record) ([]byte, error) {
	var out bytes.Buffer
	for _, r := range records {
		b, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		l, err := json.Marshal(line{lineSum(b), b})
		if err != nil {
			return nil, err
		}
		out.Write(append(l, '\n'))
	}
	return out.Bytes(), nil
}

var (
	errSum    = errors.New("its checksum does not fit")
	errSchema = errors.New("it is of another version of acceld")
)

func decode(b []byte) (record, error) {
	var l line
	var r record
	if err := json.Unmarshal(b, &l); err != nil {
		return r, err
	}
	if lineSum(l.Record) != l.Sum {
		return r, errSum
	}
	if err := json.Unmarshal(l.Record, &r); err != nil {
		return r, err
	}
	if r.Op == opSchema && r.Schema != schema {
		return r, fmt.Errorf("%w: schema %d, this one knows %d", errSchema, r.Schema, schema)
	}
	return r, nil
}

// split decodes whole lines and returns how many bytes they had. A crash may have torn the last line: its record was
// not synced yet, so the change that it announces was not begun. Any other damage is an error that names the line.
func split(b []byte, before int) (records []record, good int, err error) {
	for n := before + 1; len(b) > 0; n++ {
		text, rest, whole := bytes.Cut(b, []byte{'\n'})
		r, err := decode(text)
		if !whole || err != nil && len(bytes.Trim(rest, "\x00")) == 0 && !errors.Is(err, errSchema) {
			return records, good, nil
		}
		if err != nil {
			return nil, good, fmt.Errorf("line %d cannot be read: %w", n, err)
		}
		records = append(records, r)
		good += len(text) + 1
		b = rest
	}
	return records, good, nil
}
