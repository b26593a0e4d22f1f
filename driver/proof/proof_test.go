package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/host"
)

const device = "0000:3b:00.0"

// line is an answer with a changed part.
func line(change func(*accel.ProofLine)) []byte {
	l := accel.ProofLine{
		Device: device, Seed: 7, Name: "a card", Driver: "1.2", Items: accel.ProofItems, Milliseconds: 12,
	}
	change(&l)
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

func TestParse(t *testing.T) {
	same := func(*accel.ProofLine) {}
	other := func(change func(*accel.ProofLine)) host.Finished { return host.Finished{Output: line(change)} }
	for name, c := range map[string]struct {
		answer host.Finished
		says   string
	}{
		"right":             {host.Finished{Output: line(same)}, ""},
		"nothing":           {host.Finished{}, "exactly one line"},
		"half a line":       {host.Finished{Output: line(same)[:40]}, "exactly one line"},
		"two lines":         {host.Finished{Output: append(line(same), line(same)...)}, "exactly one line"},
		"too long":          {host.Finished{Output: line(same), Cut: true}, "more than 16384 bytes"},
		"a failure after":   {host.Finished{Output: line(same), Failure: "signal: killed"}, "has ended: signal: killed"},
		"no JSON":           {host.Finished{Output: []byte("yes\n")}, "cannot be read"},
		"another type":      {host.Finished{Output: []byte("[1]\n")}, "cannot be read"},
		"an empty one":      {host.Finished{Output: []byte("{}\n")}, "another question"},
		"another device":    {other(func(l *accel.ProofLine) { l.Device = "0000:3c:00.0" }), "another question"},
		"an older one":      {other(func(l *accel.ProofLine) { l.Seed = 8 }), "another question"},
		"less work":         {other(func(l *accel.ProofLine) { l.Items-- }), "only 1048575 numbers"},
		"a negative number": {other(func(l *accel.ProofLine) { l.Milliseconds = -1 }), "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(c.answer, device, 7)
			if c.says == "" && (err != nil || got.Name != "a card") ||
				c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%+v, %v, want %q", got, err, c.says)
			}
		})
	}
	got, err := parse(host.Finished{Output: line(func(l *accel.ProofLine) {
		l.Name = "a\x1b[31m\u202e card\n"
		l.Fault = &accel.ProofFault{Kind: "worse", Message: strings.Repeat("ä", 1000)}
	})}, device, 7)
	if err != nil || got.Name != "a [31m  card" || got.Fault.Kind != accel.FaultUnknown ||
		len([]rune(got.Fault.Message)) != longestText {
		t.Errorf("%+v %+v %v", got, got.Fault, err)
	}
}

// TestVerdicts: every kind of fault has a row, with a reason that is documented.
func TestVerdicts(t *testing.T) {
	p := New(Options{})
	for _, kind := range []accel.ProofFaultKind{
		accel.FaultNoLibrary, accel.FaultUserSpace, accel.FaultNoDevice, accel.FaultBusy, accel.FaultSkew,
		accel.FaultRefused, accel.FaultNotReady, accel.FaultDevice, accel.FaultWrong, accel.FaultUnknown,
	} {
		if !known(kind) {
			t.Errorf("%q has no row", kind)
		}
		if kind == accel.FaultBusy {
			continue // a machine says who uses the device
		}
		o := p.judge(&accel.CheckProgram{}, Device{ID: device}, accel.ProofLine{
			Fault: &accel.ProofFault{Kind: kind, Call: "f", Code: 3, Name: "E"},
		})
		if o.Skipped != "" || o.Problem == nil || o.Problem.Reason.Doc().Sentence == "" ||
			!strings.Contains(o.Problem.Message, "(f: 3 E): ") {
			t.Errorf("%q: %+v %v", kind, o, o.Problem)
		}
	}
}

// TestOptional: a host without the library, or without the implementation of OpenCL that knows the device, leaves the
// device unchecked; one whose CUDA does not see it does not.
func TestOptional(t *testing.T) {
	p := New(Options{})
	for _, c := range []struct {
		api     string
		fault   accel.ProofFaultKind
		skipped bool
	}{
		{"cuda", accel.FaultNoLibrary, true},
		{"opencl", accel.FaultNoLibrary, true},
		{"opencl", accel.FaultNoDevice, true},
		{"cuda", accel.FaultNoDevice, false},
		{"opencl", accel.FaultWrong, false},
		{"opencl", accel.FaultUserSpace, false},
	} {
		for _, optional := range []bool{true, false} {
			o := p.judge(&accel.CheckProgram{API: c.api, Optional: optional}, Device{ID: device},
				accel.ProofLine{Fault: &accel.ProofFault{Kind: c.fault, Message: "why"}})
			if want := optional && c.skipped; (o.Skipped == "why") != want || (o.Problem == nil) != want {
				t.Errorf("%+v, optional %t: %+v", c, optional, o)
			}
		}
	}
}

// TestProgram runs a program that answers as a script says.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Options{Host: h, Operations: &deadline.Operations{}, Beside: dir})
	// Its arguments are -api A -library L -device D -uuid U -seed S.
	const answer = `{"device":"%s","seed":%s,"name":"%s","items":1048576}\n`
	for script, c := range map[string]struct {
		reason accel.Reason
		says   string
	}{
		`printf '` + answer + `' "$6" "${10}" "$2 $4 $X $LD_LIBRARY_PATH"`: {"", "a l 1 /somewhere"},
		`printf '` + answer + `' "$6" "${10}"; exit 1`:                     {accel.CheckNotRun, "exit status 1"},
		`echo yes`:                  {accel.CheckNotRun, "cannot be read"},
		`echo why >&2; kill -6 $$`:  {accel.CheckNotRun, "aborted"},
		`yes`:                       {accel.CheckFailed, "within 1s"},
		`trap '' TERM; sleep 100 &`: {accel.CheckNotRun, "one line"},
	} {
		program := fmt.Sprintf("#!/bin/sh\n%s\n", script)
		name := filepath.Join(dir, "acceld-prove")
		if err := errors.Join(os.WriteFile(name+".new", []byte(program), 0o755),
			os.Rename(name+".new", name)); err != nil {
			t.Fatal(err)
		}
		check := &accel.CheckProgram{API: "a", Library: "l", Env: []string{"X=1"}, Timeout: "1s"}
		if c.says == "one line" {
			check.Timeout = "10s"
		}
		got := p.Prove(t.Context(), check, Device{ID: device, Libraries: "/somewhere"})
		switch {
		case c.reason == "" && (got.Problem != nil || got.Line.Name != c.says),
			c.reason != "" && (got.Problem == nil || got.Problem.Reason != c.reason ||
				!strings.Contains(got.Problem.Message, c.says)):
			t.Errorf("%q: %+v %v", script, got, got.Problem)
		}
	}
	if len(p.running) != 0 {
		t.Error(p.running)
	}
}

// FuzzParse: whatever was written, an answer that is accepted is about this device and can be shown.
func FuzzParse(f *testing.F) {
	f.Add(line(func(*accel.ProofLine) {}))
	f.Add(line(func(l *accel.ProofLine) { l.Fault = &accel.ProofFault{Kind: accel.FaultBusy, Call: "c", Code: 46} }))
	f.Add([]byte("{\"device\":\"0000:3b:00.0\",\"seed\":7,\"items\":1e9}\n"))
	f.Add([]byte("\xff\xfe{\n\n"))
	f.Fuzz(func(t *testing.T, output []byte) {
		got, err := parse(host.Finished{Output: output}, device, 7)
		if err != nil {
			return
		}
		texts := []string{got.Name, got.Driver}
		switch {
		case got.Device != device || got.Seed != 7 || got.Milliseconds < 0:
			t.Errorf("%+v", got)
		case got.Fault == nil && got.Items < accel.ProofItems:
			t.Errorf("too little work: %+v", got)
		case got.Fault != nil:
			texts = append(texts, got.Fault.Call, got.Fault.Name, got.Fault.Message)
			if !known(got.Fault.Kind) {
				t.Errorf("%+v", got.Fault)
			}
		}
		for _, text := range texts {
			if text != clean(text) || strings.ContainsAny(text, "\n\x1b") {
				t.Errorf("%q", text)
			}
		}
	})
}
