// Package channel runs commands in a guest, copies files and opens connections there, over SSH but without a shell: a
// request carries an argument vector, so nothing that came from outside is ever parsed as a script. The same package is
// the server inside the guest. It knows nothing of virtual machines.
package channel

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
)

// subsystem is the name of the SSH subsystem that speaks this protocol.
const subsystem = "bed"

// Request asks the guest for one thing: a command, a file to write, or a file to read.
type Request struct {
	// Argv is the command. Its input and output are the session's.
	Argv []string `json:"argv,omitempty"`
	// Env is added to the server's own environment, as NAME=value.
	Env []string `json:"env,omitempty"`
	// Put is a file to write with the content of the session's input, atomically; missing folders are made.
	Put string `json:"put,omitempty"`
	// Mode is the permission of the file to write.
	Mode fs.FileMode `json:"mode,omitempty"`
	// Get is a file to read to the session's output.
	Get string `json:"get,omitempty"`
}

// maxRequest bounds a request, so that a broken peer cannot make the server allocate without end.
const maxRequest = 4 << 20

// write sends a request: its length as four bytes, then JSON. What follows on the stream is the input.
func (r Request) write(w io.Writer) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot encode request: %w", err)
	}
	if _, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		return fmt.Errorf("cannot send request: %w", err)
	}
	return nil
}

func readRequest(r io.Reader) (Request, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return Request{}, fmt.Errorf("cannot read the length of a request: %w", err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxRequest {
		return Request{}, fmt.Errorf("cannot accept a request of %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return Request{}, fmt.Errorf("cannot read a request: %w", err)
	}
	var request Request
	if err := json.Unmarshal(body, &request); err != nil {
		return Request{}, fmt.Errorf("cannot decode a request: %w", err)
	}
	return request, nil
}

// exitStatus is the payload of SSH's "exit-status" (RFC 4254, section 6.10).
type exitStatus struct{ Status uint32 }

// signalName is the payload of SSH's "signal" (RFC 4254, section 6.9); the name has no SIG in front.
type signalName struct{ Name string }

// named is the payload of SSH's "subsystem" (RFC 4254, section 6.5).
type named struct{ Name string }

// directTCP is the payload of SSH's "direct-tcpip" (RFC 4254, section 7.2).
type directTCP struct {
	Host       string
	Port       uint32
	OriginHost string
	OriginPort uint32
}
