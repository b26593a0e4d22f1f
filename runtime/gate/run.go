package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Limits on what the hook reads, in bytes. A container's specification has tens of KiB, a readiness file a few.
const (
	maxState = 1 << 20
	maxSpec  = 16 << 20
)

// Request is what one run of the hook must check.
type Request struct {
	// IDs are the devices that the CDI spec injected; empty if an annotation triggered the hook.
	IDs []string
	// State is the path of the readiness file, Socket that of the agent's socket.
	State, Socket string
}

// Parse parses the arguments of the hook, without its name: "createRuntime [--device ID]... [--state PATH]
// [--socket PATH]".
func Parse(args []string) (Request, error) {
	r := Request{State: Path, Socket: Socket}
	if len(args) == 0 || args[0] != "createRuntime" {
		return r, fmt.Errorf("cannot run: the only stage is createRuntime, got %q", args)
	}
	for args = args[1:]; len(args) > 0; args = args[2:] {
		if len(args) < 2 || args[1] == "" {
			return r, fmt.Errorf("cannot run: argument %q has no value", args[0])
		}
		switch args[0] {
		case "--device":
			r.IDs = append(r.IDs, args[1])
		case "--state":
			r.State = args[1]
		case "--socket":
			r.Socket = args[1]
		default:
			return r, fmt.Errorf("cannot run: unknown argument %q", args[0])
		}
	}
	return r, nil
}

// Decide is the hook: it reads the OCI state from stdin and returns nil if the container may start. With r.IDs the
// container has those devices, so anything unknown stops it. Without r.IDs the bundle says what the container was
// given, and a container without devices passes without a look at the readiness file. Devices that are passed from
// tenant to tenant with care it asks the agent for.
func Decide(r Request, stdin io.Reader) error {
	state, err := readState(stdin)
	if err != nil {
		return err
	}
	of := inBundle
	if len(r.IDs) > 0 {
		of = injected
	}
	f, ids, err := of(r, state)
	if err != nil {
		return err
	}
	return f.handOver(state, ids, r.Socket)
}

// injected decides about the devices that the CDI spec injected, and returns the readiness of all devices, and their
// IDs.
func injected(r Request, state []byte) (File, []string, error) {
	f, err := load(r.State)
	if err != nil {
		return f, nil, notReady(r.IDs[0], "Unknown", err.Error())
	}
	if err := f.Named(r.IDs); err != nil || len(f.Choices) == 0 {
		return f, r.IDs, err
	}
	c, err := container(state)
	if err != nil { // something may have been chosen for it
		return f, nil, err
	}
	return f, r.IDs, f.Chosen(c, r.IDs)
}

// inBundle decides about the devices in the container's specification, as injected does.
func inBundle(r Request, state []byte) (f File, ids []string, err error) {
	c, err := container(state)
	if err != nil || len(c.Linux.Devices) == 0 {
		return f, nil, err
	}
	if f, err = load(r.State); err != nil {
		return f, nil, fmt.Errorf("device %s is not ready: Unknown: %w", c.Linux.Devices[0].Path, err)
	}
	if err := f.Given(c.Linux.Devices); err != nil {
		return f, nil, err
	}
	return f, f.given(c), f.Chosen(c, nil)
}

// handOver asks the agent for those of the devices that it hands over.
func (f File) handOver(state []byte, ids []string, socket string) error {
	asked, patience := f.handedOver(ids)
	if len(asked) == 0 {
		return nil
	}
	var s struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(state, &s); err != nil || s.PID <= 0 {
		return notReady(asked[0], "HandoverRefused", "the container's state has no process")
	}
	return ask(socket, Ask{PID: s.PID, Devices: asked}, patience)
}

// readState reads the OCI state. It reads all of it, however long, because a runtime that writes to a closed pipe
// reports that instead of our line; the hook's timeout is the bound of that.
func readState(stdin io.Reader) ([]byte, error) {
	state, err := io.ReadAll(io.LimitReader(stdin, maxState+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the container's state: %w", err)
	}
	if len(state) > maxState {
		_, _ = io.Copy(io.Discard, stdin) // it is refused either way
		return nil, fmt.Errorf("cannot use the container's state: it is longer than %d bytes", maxState)
	}
	return state, nil
}

func load(name string) (File, error) {
	b, err := read(name, maxState)
	if errors.Is(err, os.ErrNotExist) {
		return File{}, fmt.Errorf("no agent has published %q since the boot", name)
	}
	if err != nil {
		return File{}, fmt.Errorf("cannot read the readiness of devices: %w", err)
	}
	return Decode(b)
}

// read returns the content of a file of at most limit bytes.
func read(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%q is larger than %d bytes", name, limit)
	}
	return b, err
}
