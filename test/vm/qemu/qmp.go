package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Monitor is a connection to QEMU's machine protocol (QMP). It carries one command at a time and keeps the events.
type Monitor struct {
	conn    *net.UnixConn
	mu      sync.Mutex
	replies chan reply
	events  *events
}

type reply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string         `json:"event"`
	Data  map[string]any `json:"data"`
}

// newMonitor does the handshake on a connection to QEMU.
func newMonitor(ctx context.Context, conn *net.UnixConn) (*Monitor, error) {
	m := &Monitor{conn: conn, replies: make(chan reply, 1), events: newEvents()}
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetReadDeadline(deadline)
	}
	in := bufio.NewReader(conn)
	if _, err := in.ReadBytes('\n'); err != nil {
		conn.Close()
		return nil, fmt.Errorf("cannot read the monitor's greeting, so QEMU did not start: %w", err)
	}
	conn.SetReadDeadline(time.Time{})
	go m.read(in)
	if err := m.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		conn.Close()
		return nil, err
	}
	return m, nil
}

func (m *Monitor) read(in *bufio.Reader) {
	defer m.events.close()
	defer close(m.replies)
	dec := json.NewDecoder(in)
	for {
		var r reply
		if err := dec.Decode(&r); err != nil {
			return
		}
		if r.Event != "" {
			m.events.add(r.Event, r.Data)
			continue
		}
		m.replies <- r
	}
}

// Execute runs one command; arguments and result may be nil.
func (m *Monitor) Execute(ctx context.Context, command string, arguments, result any) error {
	return m.execute(ctx, command, arguments, result, nil)
}

// sendFile hands an open file to QEMU under a name.
func (m *Monitor) sendFile(ctx context.Context, name string, file *os.File) error {
	return m.execute(ctx, "getfd", map[string]any{"fdname": name}, nil, syscall.UnixRights(int(file.Fd())))
}

func (m *Monitor) execute(ctx context.Context, command string, arguments, result any, rights []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	line, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("cannot encode monitor command %q: %w", command, err)
	}
	m.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if _, _, err := m.conn.WriteMsgUnix(append(line, '\n'), rights, nil); err != nil {
		return fmt.Errorf("cannot send monitor command %q: %w", command, err)
	}
	select {
	case r, open := <-m.replies:
		switch {
		case !open:
			return fmt.Errorf("cannot run monitor command %q: QEMU closed the monitor", command)
		case r.Error != nil:
			return fmt.Errorf("cannot run monitor command %q: %s", command, r.Error.Desc)
		case result == nil:
			return nil
		}
		if err := json.Unmarshal(r.Return, result); err != nil {
			return fmt.Errorf("cannot read the answer to monitor command %q: %w", command, err)
		}
		return nil
	case <-ctx.Done():
		// The answer would be taken for that of the next command: this connection is of no more use.
		m.conn.Close()
		return fmt.Errorf("cannot run monitor command %q: %w", command, ctx.Err())
	}
}

// WaitEvent waits for an event after mark that the filter accepts.
func (m *Monitor) WaitEvent(ctx context.Context, mark int, name string, accept func(data map[string]any) bool) error {
	return m.events.wait(ctx, mark, name, accept)
}

// Mark is the present end of the list of events: take it before the command that causes the event to wait for.
func (m *Monitor) Mark() int { return m.events.len() }

// Close ends the connection; QEMU goes on.
func (m *Monitor) Close() { m.conn.Close() }

type event struct {
	name string
	data map[string]any
}

// events is a list that one goroutine appends to and others wait on.
type events struct {
	mu      sync.Mutex
	list    []event
	changed chan struct{}
	closed  bool
}

func newEvents() *events { return &events{changed: make(chan struct{})} }

func (e *events) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.list)
}

func (e *events) add(name string, data map[string]any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event{name, data})
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *events) wait(ctx context.Context, from int, name string, accept func(map[string]any) bool) error {
	for {
		e.mu.Lock()
		list, changed, closed := e.list, e.changed, e.closed
		e.mu.Unlock()
		for ; from < len(list); from++ {
			if list[from].name == name && (accept == nil || accept(list[from].data)) {
				return nil
			}
		}
		if closed {
			return fmt.Errorf("cannot wait for event %q: QEMU closed the monitor", name)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for event %q: %w", name, ctx.Err())
		}
	}
}
