package main

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"

	"github.com/acceld/acceld/accel"
)

// failure is a call of a library that failed, or a result that is wrong.
type failure struct {
	kind    accel.ProofFaultKind
	call    string
	code    int
	name    string
	message string
}

// Error implements error.
func (f *failure) Error() string {
	return fmt.Sprintf("%s: %s returned %d %s: %s", f.kind, f.call, f.code, f.name, f.message)
}

// meaning is what a code of an interface says.
type meaning struct {
	name    string
	kind    accel.ProofFaultKind
	message string // what to do, if that is more than the kind says
}

// library is a loaded library, whose functions return a code that is 0 for success.
type library struct {
	name   string
	handle uintptr
	// codes is the meaning of the codes.
	codes map[int]meaning
}

// load loads a library as the host's loader finds it.
func load(name string, codes map[int]meaning) (*library, error) {
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		// glibc names the file that it misses: the library itself, or one that it needs (elf/dl-load.c).
		if strings.HasPrefix(err.Error(), name+": cannot open shared object file: No such file") {
			return nil, &failure{
				kind: accel.FaultNoLibrary, name: name,
				message: fmt.Sprintf("library %q was not found on the host", name),
			}
		}
		return nil, &failure{kind: accel.FaultUserSpace, name: name, message: err.Error()}
	}
	return &library{name, handle, codes}, nil
}

// table is an argument that points to an array of arguments.
type table []any

// call calls a function. An argument is an int or a uintptr, a pointer, or a [table].
func (l *library) call(function string, args ...any) error {
	code, err := l.result(function, args...)
	if err != nil || int32(code) == 0 {
		return err
	}
	return l.failed(function, int(int32(code))) // C's int is in the lower half
}

// object calls a function that returns an object and puts its code into status, which is among the arguments.
func (l *library) object(function string, status *int32, args ...any) (uintptr, error) {
	result, err := l.result(function, args...)
	if err == nil && *status != 0 {
		err = l.failed(function, int(*status))
	}
	return result, err
}

// result calls a function and returns what it returns.
func (l *library) result(function string, args ...any) (uintptr, error) {
	at, err := purego.Dlsym(l.handle, function)
	if err != nil || at == 0 {
		return 0, &failure{
			kind: accel.FaultUserSpace, call: function, name: l.name,
			message: fmt.Sprintf("library %q has no function %q", l.name, function),
		}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	result, _, _ := purego.SyscallN(at, words(args, &pin)...)
	return result, nil
}

// words returns arguments as C takes them. What they point to stays where it is until it is unpinned.
func words(args []any, pin *runtime.Pinner) []uintptr {
	out := make([]uintptr, 0, max(1, len(args)))
	for _, a := range args {
		switch v := a.(type) {
		case int:
			out = append(out, uintptr(v))
		case uintptr:
			out = append(out, v)
		case table:
			inner := words(v, pin)
			pin.Pin(&inner[0])
			out = append(out, reflect.ValueOf(&inner[0]).Pointer())
		default:
			pin.Pin(a)
			out = append(out, reflect.ValueOf(a).Pointer())
		}
	}
	return out
}

// failed is the failure of a call with a code.
func (l *library) failed(function string, code int) error {
	m, ok := l.codes[code]
	if !ok {
		m.kind = accel.FaultUnknown
	}
	return &failure{kind: m.kind, call: function, code: code, name: m.name, message: m.message}
}

// text returns a C string in a buffer.
func text(buffer []byte) string {
	s, _, _ := strings.Cut(string(buffer), "\x00")
	return s
}
