package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/host"
)

// smallRoot makes a root file system in dir. It has a program, at the path at, and the loader that the program names
// and this machine's C library, at the paths that they have here. Whatever else the program loads must come from
// elsewhere.
func smallRoot(dir, program, at string) error {
	h, err := host.New("/")
	if err != nil {
		return err
	}
	interpreter, err := loader(program)
	if err != nil {
		return err
	}
	files := map[string]string{at: program, interpreter: interpreter}
	for _, soname := range []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"} {
		file, err := h.Programs().Library(soname)
		if err != nil {
			return err
		}
		files[filepath.Join(filepath.Dir(file), soname)] = file
	}
	for name, from := range files {
		text, err := os.ReadFile(from)
		name = filepath.Join(dir, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(name), 0o755)
		}
		if err == nil {
			err = os.WriteFile(name, text, 0o755)
		}
		if err != nil {
			return fmt.Errorf("cannot copy %s: %w", from, err)
		}
	}
	for _, empty := range []string{"dev", "proc", "sys", "tmp", "run", "etc", "usr/lib", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(dir, empty), 0o755); err != nil {
			return fmt.Errorf("cannot make a root: %w", err)
		}
	}
	return nil
}

// loader is the interpreter that a program names.
func loader(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", program, err)
	}
	defer f.Close()
	section := f.Section(".interp")
	if section == nil {
		return "", fmt.Errorf("%s names no loader", program)
	}
	name, err := section.Data()
	if err != nil {
		return "", fmt.Errorf("cannot read which loader %s names: %w", program, err)
	}
	return strings.TrimRight(string(name), "\x00"), nil
}
