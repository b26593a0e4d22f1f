package store

import (
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// Collect removes from the store what nothing needs any more. It keeps what is loaded, and for the running kernel and
// every other installed one: the drivers that serve or served before, the last one that was built, and those of
// upgrades in progress. Of the rest it keeps the newest ones within the limits.
func (s *Store) Collect(facts accel.Facts, underway []*Generation) {
	entries, err := s.List()
	if err != nil {
		s.o.Log.Warn("cannot read the store", "error", err)
		return
	}
	needed := s.needed(facts, entries, underway)
	kept, size := 0, int64(0)
	for _, e := range slices.Backward(entries) {
		if needed[e.Key] {
			continue
		}
		bytes := s.Size(e.Path)
		if e.Problem == "" && kept < s.o.Entries && (s.o.MiB == 0 || size+bytes <= int64(s.o.MiB)<<20) {
			kept++
			size += bytes
			continue
		}
		if err := s.discard(e); err != nil {
			s.o.Log.Warn("cannot remove a driver from the store", "key", e.Key, "error", err)
			continue
		}
		s.o.Log.Info("driver removed from the store", "kind", e.Kind, "version", e.Version, "kernel", e.KernelRelease,
			"key", e.Key)
	}
}

// discard removes an entry, its manifest first. If the process is killed in the middle, no entry is left. Otherwise
// an entry could be left that lists modules but has none, and would be refused forever.
func (s *Store) discard(e Entry) error {
	if err := s.h.Remove(path.Join(e.Path, "manifest.json")); err != nil {
		return err
	}
	s.o.Point("discard")
	return s.h.RemoveAll(e.Path)
}

// needed returns the keys of the entries that must stay.
func (s *Store) needed(facts accel.Facts, entries []Entry, underway []*Generation) map[string]bool {
	out := map[string]bool{}
	need := func(gs ...*Generation) {
		for _, g := range gs {
			if g != nil {
				out[g.Key] = true
			}
		}
	}
	for _, c := range s.choices() {
		need(c.Current, c.Previous)
	}
	need(underway...)
	installed := func(e Entry) bool {
		return e.KernelRelease == facts.Kernel.Release || s.h.Exists(path.Join("/lib/modules", e.KernelRelease))
	}
	last := map[string]bool{} // the kinds and kernels whose newest entry was seen
	for _, e := range slices.Backward(entries) {
		if !installed(e) {
			delete(out, e.Key) // its kernel is gone and cannot be booted
		} else if at := e.Kind + "@" + e.KernelRelease; e.Problem == "" && !e.Kept && !last[at] {
			last[at], out[e.Key] = true, true
		}
		for _, m := range e.Modules {
			if live, ok := kmod.Live(s.h, m.Name); ok && kmod.Same(live, m.BuildID, m.SrcVersion, m.Version) {
				out[e.Key] = true
			}
		}
	}
	return out
}

// Size is the total size in bytes of the files below a directory.
func (s *Store) Size(dir string) int64 {
	entries, err := s.h.ReadDir(dir)
	if err != nil {
		return 0
	}
	var sum int64
	for _, e := range entries {
		if e.IsDir() {
			sum += s.Size(path.Join(dir, e.Name()))
		} else if st, err := e.Info(); err == nil {
			sum += st.Size()
		}
	}
	return sum
}
