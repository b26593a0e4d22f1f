package ledger

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLastingNotes: a note about what survives a boot is valid in every boot, and the others are not.
func TestLastingNotes(t *testing.T) {
	root := t.TempDir()
	boot := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	must(t, os.MkdirAll(filepath.Dir(boot), 0o755))
	must(t, os.WriteFile(boot, []byte("boot-1\n"), 0o644))
	l := open(t, root)
	must(t, l.NoteLasting("setting", "a", "1"))
	must(t, l.NoteLasting("setting", "a", "2"))
	must(t, l.NoteLasting("other", "a", "3"))
	must(t, l.Note("setting", "b", "4"))
	is := func(l *Ledger, lasting, others, rest int) {
		t.Helper()
		long, err := l.LastingNotes("setting")
		must(t, err)
		short, err := l.Notes("setting")
		must(t, err)
		remaining, err := l.Remaining()
		must(t, err)
		if len(long) != lasting || len(short) != others || remaining != rest {
			t.Errorf("%+v, %+v, %d on record", long, short, remaining)
		}
		if lasting > 0 && (long[0].Text != "2" || long[0].Name != "a" || !long[0].Lasting) {
			t.Errorf("%+v", long[0])
		}
	}
	is(l, 1, 1, 3)
	if _, err := os.Stat(filepath.Join(root, stateDir, "ledger/journal")); err != nil {
		t.Errorf("it is not on the disk: %v", err)
	}
	must(t, os.WriteFile(boot, []byte("boot-2\n"), 0o644))
	next := open(t, root)
	is(next, 1, 0, 2)
	must(t, next.ForgetLasting("setting", "a"))
	must(t, next.ForgetLasting("other", "a"))
	is(next, 0, 0, 0)
	is(open(t, root), 0, 0, 0)
}
