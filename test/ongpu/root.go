package main

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// smallRoot makes a root file system below dir that has a program, the loader that the program names and this machine's
// C library, each at the path that it has here. What else the program loads must come from elsewhere.
func smallRoot(dir, program, at string) error {
	interpreter, err := loader(program)
	if err != nil {
		return err
	}
	files := map[string]string{at: program, interpreter: interpreter}
	for _, soname := range []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"} {
		file, err := find(soname, interpreter)
		if err != nil {
			return err
		}
		files[file] = file
	}
	for name, from := range files {
		if err := copyFile(filepath.Join(dir, name), from); err != nil {
			return err
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

// find is where this machine has a library of its C library: beside the loader, or where Debian's and the other
// distributions' loaders look.
func find(soname, interpreter string) (string, error) {
	dirs := []string{"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"}
	if real, err := filepath.EvalSymlinks(interpreter); err == nil {
		dirs = append([]string{filepath.Dir(real)}, dirs...)
	}
	for _, dir := range dirs {
		name := filepath.Join(dir, soname)
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("this machine has no %s", soname)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("cannot copy: %w", err)
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("cannot copy %s: %w", from, err)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("cannot copy %s: %w", from, err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("cannot copy %s: %w", from, err)
	}
	return out.Close()
}
