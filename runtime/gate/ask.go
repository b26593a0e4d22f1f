package gate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// Socket is where the agent hands over devices: it answers whether a container may have them, once they were cleaned of
// what their former tenants left.
const Socket = "/run/acceld/handover.sock"

// Ask is what the hook sends, as one line of JSON.
type Ask struct {
	// PID is the first process of the container.
	PID int `json:"pid"`
	// Devices are the IDs of its devices.
	Devices []string `json:"devices"`
}

// Answer is what the agent sends back, as one line of JSON.
type Answer struct {
	// Reason and Message say why the container may not have the devices; both are empty if it may.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// maxLine bounds an [Ask] and an [Answer], in bytes: as many IDs as a container may have, and a sentence.
const maxLine = 64 << 10

// between is how long the hook waits before it connects again, because the agent is restarted.
const between = 100 * time.Millisecond

// ask asks the agent for devices until it answers, or the patience has ended.
func ask(socket string, a Ask, patience time.Duration) error {
	end := time.Now().Add(patience)
	for {
		answer, err := askOnce(socket, a, end)
		switch {
		case err == nil && answer == (Answer{}):
			return nil
		case err == nil:
			return notReady(strings.Join(a.Devices, ","), answer.Reason, answer.Message)
		case time.Now().Add(between).After(end):
			return notReady(strings.Join(a.Devices, ","), "HandoverRefused",
				fmt.Sprintf("the agent, which hands it over, does not answer: %v", err))
		}
		<-time.After(between)
	}
}

// askOnce asks the agent once.
func askOnce(socket string, a Ask, end time.Time) (out Answer, err error) {
	conn, err := net.DialTimeout("unix", socket, time.Until(end))
	if err != nil {
		return out, err
	}
	defer func() { _ = conn.Close() }() // whatever was to be read was read
	if err := conn.SetDeadline(end); err != nil {
		return out, err
	}
	if err := writeLine(conn, a); err != nil {
		return out, err
	}
	return out, readLine(conn, &out)
}

func writeLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}

func readLine(r io.Reader, v any) error {
	line, err := bufio.NewReader(io.LimitReader(r, maxLine)).ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// ReadAsk reads what a hook asks.
func ReadAsk(r io.Reader) (a Ask, err error) {
	if err := readLine(r, &a); err != nil {
		return a, fmt.Errorf("cannot read what a hook asks: %w", err)
	}
	switch {
	case a.PID <= 0:
		return a, fmt.Errorf("a hook asks for process %d", a.PID)
	case len(a.Devices) == 0, len(a.Devices) > maxNodes, longest(a.Devices...) > maxName:
		return a, errors.New("a hook asks for no devices, or for too many")
	}
	return a, nil
}

// WriteAnswer answers a hook.
func WriteAnswer(w io.Writer, a Answer) error {
	a.Message = shorten(a.Message)
	return writeLine(w, a)
}

// handedOver returns those devices among ids that the agent hands over, and how long to wait for them.
func (f File) handedOver(ids []string) (asked []string, patience time.Duration) {
	for _, d := range f.Devices {
		if d.Handover > 0 && slices.Contains(ids, d.ID) {
			asked = append(asked, d.ID)
			patience = max(patience, time.Duration(d.Handover)*time.Second)
		}
	}
	return asked, patience
}

// given returns the IDs of the devices that a container's specification has, by number or by name.
func (f File) given(c Container) (ids []string) {
	for _, d := range f.Devices {
		if slices.ContainsFunc(c.Linux.Devices, d.has) {
			ids = append(ids, d.ID)
		}
	}
	return ids
}
