package proof

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const (
	// longest is the maximum length of the program's answer, in bytes.
	longest = 16 << 10
	// longestText is the maximum length of one text in it, in characters.
	longestText = 300
)

// parse reads the program's answer: one line, about this device, for this seed. A library was loaded beside the
// program, so nothing in it is taken for granted.
func parse(a host.Finished, device string, seed uint64) (accel.ProofLine, error) {
	var line accel.ProofLine
	text, ended := bytes.CutSuffix(a.Output, []byte("\n"))
	switch {
	case a.Failure != "":
		return accel.ProofLine{}, fmt.Errorf("has ended: %s", clean(a.Failure))
	case a.Cut:
		return accel.ProofLine{}, fmt.Errorf("has written more than %d bytes", longest)
	case !ended || bytes.ContainsRune(text, '\n'):
		return accel.ProofLine{}, errors.New("has not written exactly one line")
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return accel.ProofLine{}, fmt.Errorf("has written what cannot be read: %s", clean(err.Error()))
	}
	if line.Device != device || line.Seed != seed {
		return accel.ProofLine{}, errors.New("has answered another question")
	}
	line.Name, line.Driver = clean(line.Name), clean(line.Driver)
	if line.Milliseconds < 0 || line.Items < 0 {
		return accel.ProofLine{}, errors.New("has written a negative number")
	}
	if f := line.Fault; f != nil {
		f.Call, f.Name, f.Message = clean(f.Call), clean(f.Name), clean(f.Message)
		if !known(f.Kind) {
			f.Kind = accel.FaultUnknown
		}
	} else if line.Items < accel.ProofItems {
		return accel.ProofLine{}, fmt.Errorf("let only %d numbers be computed, at least %d are needed", line.Items,
			accel.ProofItems)
	}
	return line, nil
}

// clean returns a text that can stand in one line of a terminal, with at most longestText characters.
func clean(text string) string {
	runes := []rune(strings.ToValidUTF8(text, "?"))
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	text = strings.TrimSpace(string(runes))
	if runes = []rune(text); len(runes) > longestText {
		text = string(runes[:longestText-1]) + "…"
	}
	return text
}
