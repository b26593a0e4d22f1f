package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// Session is a program that a command runs for a while, without an agent. It is not safe for concurrent use.
type Session struct {
	child   *host.Resident
	end     context.CancelFunc
	lines   chan []byte
	devices map[string]accel.ProbeDevice
}

// starting is how long a program may take until its first report.
const starting = time.Minute

// Start starts the program of a definition, and waits for its first report. Beside is the directory of the agent's own
// programs. Close ends it.
func Start(ctx context.Context, h *host.Host, beside string, def *accel.Definition) (*Session, error) {
	ctx, end := context.WithCancel(ctx)
	child, err := reside(ctx, h, beside, def)
	if err != nil {
		end()
		return nil, err
	}
	s := &Session{child: child, end: end, lines: make(chan []byte)}
	guard.Go(func() {
		defer close(s.lines)
		defer child.Output.Close()
		scan := bufio.NewScanner(child.Output)
		scan.Buffer(make([]byte, 0, 64<<10), longest)
		for scan.Scan() {
			select {
			case s.lines <- append([]byte(nil), scan.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
	})
	_, err = s.until(ctx, starting, func(l accel.ProbeLine) bool { return l.Snapshot != nil })
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", filepath.Base(def.Probe.Argv[0]), err)
	}
	return s, nil
}

// reside starts the program of a definition.
func reside(ctx context.Context, h *host.Host, beside string, def *accel.Definition) (*host.Resident, error) {
	argv, own := append([]string(nil), def.Probe.Argv...), false
	if !strings.Contains(argv[0], "/") {
		argv[0], own = filepath.Join(beside, argv[0]), true
	}
	return h.Programs().Reside(ctx, argv, own)
}

// until reads lines until one is found, and takes over the snapshots before it.
func (s *Session) until(ctx context.Context, limit time.Duration, found func(accel.ProbeLine) bool) (
	line accel.ProbeLine, err error,
) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		select {
		case text, more := <-s.lines:
			line = accel.ProbeLine{}
			switch {
			case !more:
				return line, errors.New("it has ended")
			case json.Unmarshal(text, &line) != nil:
				return line, errors.New("a line cannot be read")
			case line.Hello != nil && line.Hello.Protocol != accel.ProbeProtocol:
				return line, fmt.Errorf("it speaks version %d of the protocol", line.Hello.Protocol)
			case line.Absent != "":
				return line, absence(clean(line.Absent))
			case line.Problem != nil:
				err = errors.New(clean(line.Problem.Message)) // it may go away
			case line.Snapshot != nil:
				s.devices, err = devices(line.Snapshot), nil
			}
			if found(line) {
				return line, nil
			}
		case <-late.C:
			if err == nil {
				err = fmt.Errorf("it has not answered within %s", limit)
			}
			return line, err
		case <-ctx.Done():
			return line, ctx.Err()
		}
	}
}

// Settings returns what the program has reported last about the settings of a device. Known is false if it does not
// know the device.
func (s *Session) Settings(device string) (all map[string]accel.ProbeSetting, known bool) {
	d, known := s.devices[device]
	return d.Settings, known
}

// Set asks the program to set something, and returns why it was not set.
func (s *Session) Set(ctx context.Context, r accel.ProbeSet) error {
	if err := tell(s.child, accel.ProbeRequest{Set: &r}); err != nil {
		return err
	}
	line, err := s.until(ctx, setting, func(l accel.ProbeLine) bool {
		return l.Set != nil && l.Set.Device == r.Device && l.Set.Setting == r.Setting && l.Set.Value == r.Value
	})
	if err == nil && line.Set.Problem != "" {
		err = errors.New(clean(line.Set.Problem))
	}
	return err
}

// Close ends the program.
func (s *Session) Close() {
	s.end()
	_ = s.child.Input.Close() // the program is killed anyway
	late := time.NewTimer(dying)
	defer late.Stop()
	select {
	case <-s.child.Ended():
	case <-late.C: // it hangs in the kernel
	}
}
