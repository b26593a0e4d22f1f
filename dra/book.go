package dra

import (
	"encoding/json"
	"errors"
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

// book keeps the records of prepared claims, one file for each, so that claims wait for nobody's disk but their own. A
// record is on the disk before anything else of a claim is. The lock is held for memory operations only.
type book struct {
	host *host.Host
	dir  string
	log  *slog.Logger

	mu      sync.Mutex
	opened  bool
	records map[string]record // by UID
	// damaged are the claims whose records cannot be read: they were prepared, and nobody knows with what.
	damaged map[string]bool
}

// records is the directory of the records of a kind.
func records(stateDir string, def *accel.Definition) string {
	return path.Join(stateDir, "dra", def.Kind)
}

// Served reports whether claims of a kind were served on a host and perhaps still are held: somebody has to take back
// what was published, and the claims.
func Served(h *host.Host, stateDir string, def *accel.Definition) bool {
	return h.Exists(records(stateDir, def))
}

func newBook(h *host.Host, dir string, log *slog.Logger) *book {
	return &book{host: h, dir: dir, log: log, records: map[string]record{}, damaged: map[string]bool{}}
}

func (b *book) file(uid string) string { return path.Join(b.dir, uid+".json") }

// open reads the records that are there. One that cannot be read is said and passed over: what it was about is read
// from the API server when a pod needs it, and its file goes when the claim is taken back.
func (b *book) open() *accel.Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	entries, err := b.host.ReadDir(b.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return accel.Problemf(accel.ReasonForError(err, accel.InternalError), "cannot read the records of claims: %v",
			err)
	}
	for _, e := range entries {
		uid, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !uidForm.MatchString(uid) {
			continue // a file that was being written when the machine stopped
		}
		data, err := b.host.ReadFile(b.file(uid))
		r := record{}
		if err == nil {
			r, err = readRecord(uid, data)
		}
		if err != nil {
			p := damaged(b.file(uid), err)
			b.log.Warn("record of a claim left out", "reason", p.Reason, "problem", p.Message)
			b.damaged[uid] = true
			continue
		}
		r.saved = true
		b.records[uid] = r
	}
	b.opened = true
	return nil
}

// begin makes the directory of the records, by which a later agent knows that claims were served here; end removes it.
func (b *book) begin() *accel.Problem {
	if err := b.host.MkdirAll(b.dir, 0o700); err != nil {
		return accel.Problemf(accel.ReasonForError(err, accel.InternalError),
			"cannot make the directory of the records of claims: %v", err)
	}
	return nil
}

func (b *book) end() {
	if err := b.host.Remove(b.dir); err != nil {
		b.log.Warn("cannot remove the directory of the records of claims", "path", b.dir, "error", err)
	}
}

// get returns the record of a claim that is on the disk.
func (b *book) get(uid string) (record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[uid]
	return r, r.saved
}

// all returns the records, by UID.
func (b *book) all() []record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.records), func(x, y record) int { return strings.Compare(x.UID, y.UID) })
}

// read reports whether the records were read.
func (b *book) read() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

func (b *book) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records)+len(b.damaged) == 0
}

// put keeps r, in memory at once and then on the disk. When another claim holds one of its devices, that claim's record
// is returned and nothing is kept. When the disk fails the devices stay held: the API server says that they are.
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
		return nil, accel.Problemf(accel.ReasonForError(err, accel.InternalError), "cannot keep the record of %s: %v",
			r, err)
	}
	r.saved = true
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records[r.UID] = r
	delete(b.damaged, r.UID)
	return nil, nil
}

// drop forgets a claim, also one whose record cannot be read. A file that cannot be removed harms nobody: the next
// agent asks the API server about it.
func (b *book) drop(uid string) {
	if err := b.host.Remove(b.file(uid)); err != nil {
		b.log.Warn("record of a claim left behind", "path", b.file(uid), "error", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.records, uid)
	delete(b.damaged, uid)
}
