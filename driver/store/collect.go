package store

import (
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// Collect removes from the store what nothing needs any more. Kept are, for the running kernel and for every other that
// is installed: the drivers that serve, served before or were built for it last; what is loaded; what an upgrade that
// is under way goes from or to; and, of the rest, the youngest within the limits.
func (s *Store) Collect(facts accel.Facts, underway []*Generation) {
	entries, err := s.List()
	if err != nil {
		s.log.Warn("cannot read the store", "error", err)
		return
	}
	needed := s.needed(facts, entries, underway)
	kept, size := 0, int64(0)
	for _, e := range slices.Backward(entries) {
		if needed[e.Key] {
			continue
		}
		bytes := s.size(e.Path)
		if e.Problem == "" && kept < s.entries && (s.mib == 0 || size+bytes <= int64(s.mib)<<20) {
			kept++
			size += bytes
			continue
		}
		if err := s.discard(e); err != nil {
			s.log.Warn("cannot remove a driver from the store", "key", e.Key, "error", err)
			continue
		}
		s.log.Info("driver removed from the store", "kind", e.Kind, "version", e.Version, "kernel", e.KernelRelease,
			"key", e.Key)
	}
}

// discard removes an entry. Its manifest goes first: whoever is stopped in the middle leaves no entry, instead of one
// that says that it has modules and has none, which would be refused for good.
func (s *Store) discard(e Entry) error {
	if err := s.h.Remove(path.Join(e.Path, "manifest.json")); err != nil {
		return err
	}
	s.point("discard")
	return s.h.RemoveAll(e.Path)
}

// needed returns the keys that must stay.
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
	last := map[string]bool{} // the kinds and kernels whose youngest entry was seen
	for _, e := range slices.Backward(entries) {
		if !installed(e) {
			delete(out, e.Key) // nobody can boot it
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

// size is what the files of a directory take.
func (s *Store) size(dir string) int64 {
	entries, err := s.h.ReadDir(dir)
	if err != nil {
		return 0
	}
	var sum int64
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			sum += st.Size()
		}
	}
	return sum
}
