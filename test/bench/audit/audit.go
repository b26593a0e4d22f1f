// Package audit counts what one user asked of an API server, by the API server's own audit log, for measurements.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Policy is an audit policy that notes what the user asks for, and nobody else.
func Policy(user string) string {
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["` + user + `"]}
- {level: None}
`
}

// Counts are requests. Those about leases, reads and writes, are only in Leases.
type Counts struct {
	// ByKind has a key such as "list nodes" or "patch nodes/status".
	ByKind map[string]int
	// All are the requests, Writes those of them that write.
	All, Writes, Leases int
	// End is the offset in bytes at which the next count begins.
	End int64
}

// Since counts the requests in a log from an offset on, in bytes. A watch counts when it begins.
func Since(log string, offset int64) (Counts, error) {
	c := Counts{ByKind: map[string]int{}, End: offset}
	file, err := os.Open(log)
	if err != nil {
		return c, fmt.Errorf("cannot read the audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return c, fmt.Errorf("cannot read the audit log: %w", err)
	}
	for lines := bufio.NewReaderSize(file, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return c, nil // a line that is being written counts the next time
		}
		if err != nil {
			return c, fmt.Errorf("cannot read the audit log: %w", err)
		}
		c.End += int64(len(line))
		if err := c.add(line); err != nil {
			return c, err
		}
	}
}

// add counts one line.
func (c *Counts) add(line []byte) error {
	var e struct {
		Verb, Stage string
		ObjectRef   struct{ Resource, Subresource string }
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("cannot read a line of the audit log: %w", err)
	}
	counted := "ResponseComplete"
	if e.Verb == "watch" {
		counted = "ResponseStarted"
	}
	switch {
	case e.Stage != counted:
		return nil
	case e.ObjectRef.Resource == "leases":
		c.Leases++
		return nil
	}
	c.All++
	c.ByKind[strings.TrimSuffix(e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")]++
	switch e.Verb {
	case "patch", "create", "update", "delete":
		c.Writes++
	}
	return nil
}
