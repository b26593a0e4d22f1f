package systemd

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// LogFormat is how the log is written.
type LogFormat string

// The formats. With LogAuto, the journal gets entries with fields if it reads this process's standard error, and
// anybody else gets lines of text.
const (
	LogAuto LogFormat = "auto"
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// LogOptions say where the log goes.
type LogOptions struct {
	To     io.Writer
	Format LogFormat // LogAuto if empty
	Level  slog.Level
	// Stderr says that To is the standard error of this process, which the journal may read.
	Stderr bool
}

// NewLog returns a log. If the journal reads it, every line has its priority (sd-daemon(3)) and no time, because the
// journal has both.
func NewLog(o LogOptions) *slog.Logger {
	read := false
	if o.Stderr {
		read, _ = journal.StderrIsJournalStream() // an error means that it cannot be told
	}
	return newLog(o, read, journal.Enabled, journal.Send)
}

// send passes an entry to the journal; see journal.Send.
type send func(message string, p journal.Priority, fields map[string]string) error

// newLog returns a log; read says that the journal reads standard error, listens that it takes entries with fields.
func newLog(o LogOptions, read bool, listens func() bool, to send) *slog.Logger {
	options := &slog.HandlerOptions{Level: o.Level}
	if read {
		options.ReplaceAttr = withoutTime
	}
	lines := &lineHandler{to: o.To, read: read, shared: &shared{}}
	if lines.handler = slog.NewTextHandler(&lines.shared.line, options); o.Format == LogJSON {
		lines.handler = slog.NewJSONHandler(&lines.shared.line, options)
	}
	if read && (o.Format == LogAuto || o.Format == "") && listens() {
		return slog.New(&journalHandler{level: o.Level, send: to, otherwise: lines})
	}
	return slog.New(lines)
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// priority is the journal's priority of a level (syslog(3)).
func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// lineHandler writes each record as a line, after its priority if the journal reads it.
type lineHandler struct {
	handler slog.Handler // writes to shared.line
	to      io.Writer
	read    bool
	shared  *shared
}

// shared is what handlers of one log have in common.
type shared struct {
	mu   sync.Mutex
	line bytes.Buffer
}

// Enabled implements slog.Handler.
func (h *lineHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *lineHandler) Handle(ctx context.Context, r slog.Record) error {
	h.shared.mu.Lock()
	defer h.shared.mu.Unlock()
	h.shared.line.Reset()
	if h.read {
		h.shared.line.WriteString("<" + string('0'+rune(priority(r.Level))) + ">")
	}
	if err := h.handler.Handle(ctx, r); err != nil {
		return err
	}
	_, err := h.to.Write(h.shared.line.Bytes())
	return err
}

// WithAttrs implements slog.Handler.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &lineHandler{h.handler.WithAttrs(attrs), h.to, h.read, h.shared}
}

// WithGroup implements slog.Handler.
func (h *lineHandler) WithGroup(name string) slog.Handler {
	return &lineHandler{h.handler.WithGroup(name), h.to, h.read, h.shared}
}

// journalHandler passes each record to the journal as an entry: the message with the attributes for people, the
// priority, and a field for each attribute, such as ACCELD_KIND.
type journalHandler struct {
	level slog.Level
	send  send
	// attrs are the attributes of the logger; the names of those in a group begin with the group's.
	attrs []slog.Attr
	group string
	// otherwise gets what the journal does not take.
	otherwise slog.Handler
}

// Enabled implements slog.Handler.
func (h *journalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// Handle implements slog.Handler.
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := append([]slog.Attr{}, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, grouped(h.group, a)...)
		return true
	})
	var text strings.Builder
	line := slog.NewRecord(r.Time, r.Level, r.Message, 0)
	line.AddAttrs(attrs...)
	words := slog.NewTextHandler(&text, &slog.HandlerOptions{Level: h.level, ReplaceAttr: attributesAlone})
	if err := words.Handle(ctx, line); err != nil {
		return err
	}
	fields := map[string]string{}
	for _, a := range attrs {
		fields[field(a.Key)] = a.Value.Resolve().String()
	}
	message := strings.TrimRight(r.Message+" "+text.String(), " \n")
	if err := h.send(message, priority(r.Level), fields); err != nil {
		return h.otherwise.Handle(ctx, r)
	}
	return nil
}

// attributesAlone leaves out what the journal gets beside the attributes.
func attributesAlone(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

// WithAttrs implements slog.Handler.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs, next.otherwise = append([]slog.Attr{}, h.attrs...), h.otherwise.WithAttrs(attrs)
	for _, a := range attrs {
		next.attrs = append(next.attrs, grouped(h.group, a)...)
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.group, next.otherwise = h.group+name+".", h.otherwise.WithGroup(name)
	return &next
}

// grouped returns an attribute, or those of a group, with the names of all groups around it.
func grouped(group string, a slog.Attr) []slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() != slog.KindGroup {
		a.Key = group + a.Key
		return []slog.Attr{a}
	}
	var all []slog.Attr
	for _, x := range a.Value.Group() {
		all = append(all, grouped(strings.TrimPrefix(group+a.Key+".", "."), x)...)
	}
	return all
}

// field returns the name of a journal field: upper-case letters, digits and underscores, at most 64 of them
// (systemd.journal-fields(7)).
func field(key string) string {
	var b strings.Builder
	b.WriteString("ACCELD_")
	for i, r := range key {
		switch {
		case r >= 'a' && r <= 'z':
			b.WriteRune(r - 'a' + 'A')
		case r >= 'A' && r <= 'Z':
			if i > 0 {
				b.WriteByte('_')
			}
			b.WriteRune(r)
		case r >= '0' && r <= '9':
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	return b.String()[:min(b.Len(), 64)]
}
