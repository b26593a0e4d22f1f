package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/guard"
)

// KmsgRecord is one record of the kernel log (Documentation/ABI/testing/dev-kmsg).
type KmsgRecord struct {
	Sequence uint64
	// Level is the severity, 0 (emergency) to 7 (debug).
	Level int
	// Facility is 0 for the kernel; anything else was written by a process and proves nothing about a device.
	Facility int
	// Boot is the time since boot.
	Boot time.Duration
	Text string
	// Fields such as SUBSYSTEM ("pci") and DEVICE ("+pci:0000:00:04.0"); nil when there are none.
	Fields map[string]string
	// Lost is the number of records before this one that were overwritten before they could be read.
	Lost uint64
}

// Kmsg delivers the kernel log until ctx ends, then closes the channel. It starts with the oldest record that the
// kernel still has. Lost records are counted in Lost of the next record. A record that cannot be parsed is delivered as
// text.
func (k Kernel) Kmsg(ctx context.Context) (<-chan KmsgRecord, error) {
	const name = "/dev/kmsg"
	f, err := k.h.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kernel log: %w", err)
	}
	st, err := f.Stat()
	if err == nil && st.Mode()&os.ModeCharDevice == 0 {
		err = &os.PathError{Op: "read", Path: name, Err: errors.New("not a character device")}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot read the kernel log: %w", Relabel(err, name))
	}
	context.AfterFunc(ctx, func() { _ = f.Close() })
	out := make(chan KmsgRecord, 64)
	guard.Go(func() {
		defer close(out)
		guard.Keep(ctx, "kernel log: reader", func(ctx context.Context) error { readKmsg(ctx, out, f.Read); return nil })
	})
	return out, nil
}

// readKmsg reads until read fails permanently (the file was closed) or ctx ends. One read is one record.
func readKmsg(ctx context.Context, out chan<- KmsgRecord, read func([]byte) (int, error)) {
	buf := make([]byte, 16<<10) // a record is at most 8 KiB (CONSOLE_EXT_LOG_MAX); a smaller buffer gets EINVAL
	var next uint64             // the expected sequence number; 0 before the first record
	for {
		n, err := read(buf)
		if errors.Is(err, unix.EPIPE) {
			continue // the next read returns the oldest remaining record; its number shows how many were lost
		}
		if err != nil || n == 0 {
			return
		}
		r, ok := parseKmsg(buf[:n])
		if ok {
			if next > 0 && r.Sequence > next {
				r.Lost = r.Sequence - next
			}
			next = r.Sequence + 1
		}
		if !send(ctx, out, r) {
			return
		}
	}
}

// parseKmsg parses "<priority>,<sequence>,<microseconds>,<flags>[,…];<text>\n" and the lines " NAME=value" that
// follow. If the prefix does not have that form, the whole line is text.
func parseKmsg(b []byte) (KmsgRecord, bool) {
	text, rest, _ := bytes.Cut(b, []byte("\n"))
	prefix, message, found := strings.Cut(string(text), ";")
	part := strings.Split(prefix, ",")
	if !found || len(part) < 3 {
		return KmsgRecord{Text: unescapeKmsg(string(text))}, false
	}
	priority, err1 := strconv.ParseUint(part[0], 10, 32)
	sequence, err2 := strconv.ParseUint(part[1], 10, 64)
	micros, err3 := strconv.ParseUint(part[2], 10, 53) // 285 years
	if errors.Join(err1, err2, err3) != nil {
		return KmsgRecord{Text: unescapeKmsg(string(text))}, false
	}
	r := KmsgRecord{
		Sequence: sequence, Level: int(priority & 7), Facility: int(priority >> 3),
		Boot: time.Duration(micros) * time.Microsecond, Text: unescapeKmsg(message),
	}
	for line := range bytes.SplitSeq(rest, []byte("\n")) {
		name, value, ok := strings.Cut(string(line), "=")
		if !ok || !strings.HasPrefix(name, " ") {
			continue
		}
		if r.Fields == nil {
			r.Fields = map[string]string{}
		}
		r.Fields[name[1:]] = unescapeKmsg(value)
	}
	return r, true
}

// unescapeKmsg undoes the kernel's escapes, such as "\x0a", for unprintable bytes and the backslash.
func unescapeKmsg(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] == 'x' {
			if v, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
