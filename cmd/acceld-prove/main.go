// Command acceld-prove lets one device compute through its vendor's library and writes what came of it to standard
// output, as accel.ProofLine. The agent starts it inside the host's root, once for each device, so that a library that
// crashes or never returns harms nobody else, and kills it when its time is over. Before it loads the library it gives
// up all privileges.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/acceld/acceld/accel"
)

func main() {
	runtime.LockOSThread() // the thread that gives up its privileges is the one that calls the library
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "acceld-prove:", err)
		os.Exit(1)
	}
}

func run() error {
	api := flag.String("api", "", "the interface: cuda or opencl")
	library := flag.String("library", "", "the library's soname or path; empty means the usual one of the interface")
	device := flag.String("device", "", "the PCI address of the device, such as 0000:3b:00.0; empty means the only one")
	uuid := flag.String("uuid", "", "all that the library may see: a device or a part of one; then -device is only a name")
	seed := flag.Uint64("seed", 0, "where the random numbers begin")
	flag.Parse()
	out, err := quiet()
	if err != nil {
		return err
	}
	if err := errors.Join(confine(), crash()); err != nil {
		return err
	}
	line := accel.ProofLine{Device: *device, Seed: *seed}
	began := time.Now()
	if err := prove(*api, *library, *uuid, &line); err != nil {
		if line.Fault = fault(err); line.Fault == nil {
			return err
		}
	}
	line.Milliseconds = time.Since(began).Milliseconds()
	return write(out, line)
}

// prove computes through an interface.
func prove(api, library, uuid string, line *accel.ProofLine) error {
	w := newWork(line.Seed)
	var err error
	switch {
	case api == "cuda":
		err = cuda(library, uuid, w, line)
	case api == "opencl" && uuid == "":
		err = opencl(library, w, line)
	default:
		return fmt.Errorf("there is no interface %q: want cuda, or opencl without a UUID", api)
	}
	if err != nil {
		return err
	}
	if err := w.compare(); err != nil {
		return err
	}
	line.Items = len(w.in)
	return nil
}

// fault returns what the answer says of an error, nil if it is not about the library or the device.
func fault(err error) *accel.ProofFault {
	var f *failure
	if !errors.As(err, &f) {
		return nil
	}
	return &accel.ProofFault{Kind: f.kind, Call: f.call, Code: f.code, Name: f.name, Message: f.message}
}

func write(out io.Writer, line accel.ProofLine) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}
