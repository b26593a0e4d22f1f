package detect

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"testing"
)

// TestGoProgram: for programs of the toolchain, the result is the same as the standard library's.
func TestGoProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs := []string{self}
	if compiler, err := exec.LookPath("go"); err == nil {
		programs = append(programs, compiler)
	}
	for _, program := range programs {
		want, err := buildinfo.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		got, err := goProgram(f)
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		want.GoVersion = "" // not read
		if got.String() != want.String() {
			t.Errorf("%s:\n%s\nwant:\n%s", program, got, want)
		}
	}
}

// TestNoGoProgram: another or a damaged file gives an error and never a panic.
func TestNoGoProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "text": []byte("#!/bin/sh\n"), "the beginning": data[:4096],
		"the half": data[:len(data)/2],
	} {
		if info, err := goProgram(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: %v", name, info)
		}
	}
	at := bytes.Index(data, []byte("\xff Go buildinf:"))
	if at < 0 {
		t.Fatal("there is no magic in the test")
	}
	for i := at; i < at+64; i++ {
		for _, bad := range []byte{0, 0x7f, 0xff} {
			was := data[i]
			data[i] = bad
			_, _ = goProgram(bytes.NewReader(data)) // the result may be valid all the same
			data[i] = was
		}
	}
}
