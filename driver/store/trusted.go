package store

import (
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/trust"
)

// Trusted judges by today's configuration who signed an entry: the keys of def's sources and the host's policy may have
// changed since it came. The problem is nil if the entry may be loaded. It says nothing about the copy of an installed
// driver, whose modules are judged by their own signatures.
func (s *Store) Trusted(def *accel.Definition, m Manifest) *accel.Problem {
	if m.Kept {
		return nil
	}
	if s.o.Trust.Require {
		trusted, problem := trust.Read(s.h, s.o.Trust)
		switch {
		case problem != nil:
			return problem
		case m.Source == "":
			return untrusted(m, "who signed it was not noted, and this host requires a trusted signature (trust.require)")
		case !trusted.Has(m.SignedBy):
			return untrusted(m, "this host does not trust "+trust.Signers(m.SignedBy)+", who signed it (trust.require)")
		}
	}
	return s.wanted(def, m)
}

// wanted judges a fetched entry by the keys of def's sources. Without keys none is demanded. The signers of an entry of
// an earlier acceld are unknown: their keys were verified when it came.
func (s *Store) wanted(def *accel.Definition, m Manifest) *accel.Problem {
	var keys []string
	free := false // some source demands no key
	for _, source := range def.Driver.Sources {
		if source.Type.Prebuilt() {
			keys = append(keys, source.Keys...)
			free = free || len(source.Keys) == 0
		}
	}
	if !m.Source.Prebuilt() || len(keys) == 0 || free && len(m.SignedBy) == 0 {
		return nil
	}
	t := s.o.Trust
	t.Keys = slices.Concat(keys, t.Keys)
	named, problem := trust.Read(s.h, t)
	if problem == nil && !named.Has(m.SignedBy) {
		problem = untrusted(m, trust.Signers(m.SignedBy)+" signed it, and no source of "+def.Kind+" names that key")
	}
	return problem
}

func untrusted(m Manifest, why string) *accel.Problem {
	return accel.Problemf(accel.SignatureInvalid, "entry %q of the store, from %q, is not used: %s", m.Key, m.Origin, why)
}
