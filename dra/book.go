package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// book keeps the records of prepared claims, one file per claim, so that no claim waits for another claim's disk
// write. A claim's record is on disk before anything else of the claim. The lock is held only for operations in
// memory.
type book struct {
	host *host.Host
	dir  string
	log  *slog.Logger

	mu      sync.Mutex
	opened  bool
	records map[string]record // by UID
	// damaged has the UIDs of claims whose records cannot be read: they were prepared, but with which devices is
	// unknown.
	damaged map[string]bool
}

// records returns the directory with the records of a kind.
func records(stateDir string, def *accel.Definition) string {
	return path.Join(stateDir, "dra", def.Kind)
}

// Served reports whether this host has served claims of a kind, some of which may still be held. If so, the
// published slices must be withdrawn and the claims unprepared.
func Served(h *host.Host, stateDir string, def *accel.Definition) bool {
	return h.Exists(records(stateDir, def))
}

// Prepared reports whether this host has the record of a claim, by UID, also if it cannot be read. The record comes
// before everything else of a claim and goes last.
func Prepared(h *host.Host, stateDir, kind, uid string) bool {
	_, err := h.Stat(path.Join(stateDir, "dra", kind, uid+".json"))
	return !errors.Is(err, fs.ErrNotExist)
}

func newBook(h *host.Host, dir string, log *slog.Logger) *book {
	return &book{host: h, dir: dir, log: log, records: map[string]record{}, damaged: map[string]bool{}}
}

func (b *book) file(uid string) string { return path.Join(b.dir, uid+".json") }

// open reads the existing records. It logs and skips a record that it cannot read: when a pod needs that claim, its
// content is read from the API server, and the file is removed when the claim is unprepared.
func (b *book) open() *accel.Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.host.Locks().RemoveAbandoned(b.dir)
	entries, err := b.host.ReadDir(b.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return accel.ProblemOf(err, "cannot read the records of claims")
	}
	for _, e := range entries {
		uid, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !uidForm.MatchString(uid) {
			continue
		}
		data, err := b.host.ReadFile(b.file(uid))
		var r record
		if err == nil {
			r, err = readRecord(uid, data)
		}
		if err != nil {
			b.log.Warn("record of a claim left out", "reason", accel.CheckpointDamaged, "problem",
				fmt.Sprintf("cannot read the record of a claim in %q: %v", b.file(uid), err))
			b.damaged[uid] = true
			continue
		}
		r.saved = true
		b.records[uid] = r
	}
	b.opened = true
	return nil
}

// begin creates the directory of the records; a later agent sees by it that claims were served here. end removes it.
func (b *book) begin() *accel.Problem {
	if err := b.host.MkdirAll(b.dir, 0o700); err != nil {
		return accel.ProblemOf(err, "cannot make the directory of the records of claims")
	}
	return nil
}

func (b *book) end() {
	if err := b.host.Remove(b.dir); err != nil {
		b.log.Warn("cannot remove the directory of the records of claims", "path", b.dir, "error", err)
	}
}

// get returns the record of a claim, and whether it is on disk.
func (b *book) get(uid string) (record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[uid]
	return r, r.saved
}

// all returns the records, sorted by UID.
func (b *book) all() []record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.records), func(x, y record) int { return strings.Compare(x.UID, y.UID) })
}

// read reports whether every record has been read. While one is damaged, its claim may hold any device.
func (b *book) read() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened && len(b.damaged) == 0
}

// held returns the devices of all claims; false if a record cannot be read, and its claim may have any device.
func (b *book) held() (devices map[string]bool, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	devices = map[string]bool{}
	for _, r := range b.records {
		for _, g := range r.Devices {
			devices[g.Device] = true
		}
	}
	return devices, b.opened && len(b.damaged) == 0
}

func (b *book) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records)+len(b.damaged) == 0
}

// put stores r in memory at once and then on disk. If another claim holds one of its devices, put returns that
// claim's record and stores nothing. If the disk write fails, the devices stay held, because the API server has
// allocated them.
func (b *book) put(r record) (rival *record, problem *accel.Problem) {
	b.mu.Lock()
	for _, o := range b.records {
		if o.UID != r.UID && slices.ContainsFunc(r.Devices, func(g given) bool {
			return slices.ContainsFunc(o.Devices, g.excludes)
		}) {
			b.mu.Unlock()
			return &o, nil
		}
	}
	r.saved = false
	b.records[r.UID] = r
	b.mu.Unlock()
	data, err := json.Marshal(r)
	if err == nil {
		err = b.host.MkdirAll(b.dir, 0o700)
	}
	if err == nil {
		err = b.host.WriteFile(b.file(r.UID), append(data, '\n'), 0o600)
	}
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot keep the record of %s", r)
	}
	r.saved = true
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records[r.UID] = r
	delete(b.damaged, r.UID)
	return nil, nil
}

// drop forgets a claim, even one whose record cannot be read. A file that cannot be removed does no harm: the next
// agent asks the API server about its claim.
func (b *book) drop(uid string) {
	if err := b.host.Remove(b.file(uid)); err != nil {
		b.log.Warn("record of a claim left behind", "path", b.file(uid), "error", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.records, uid)
	delete(b.damaged, uid)
}
