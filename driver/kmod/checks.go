package kmod

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/signing"
	"github.com/acceld/acceld/host"
)

// inspection holds what the modules of one plan are judged by. It checks a module as the kernel and its policy would,
// but more strictly. A kernel with symbol versions loads a module of another release, and with forced loading even
// one without versions; every kernel ignores a parameter that it does not know. If a module is refused here, the
// kernel is never asked.
type inspection struct {
	h       *host.Host
	log     *slog.Logger
	def     *accel.Definition
	kernel  accel.Kernel
	index   *Index
	flags   string // vermagic flags of the kernel's own modules; empty when they need not be compared
	running bool   // whether this kernel is the one that is running
	rules   *modprobe
	keys    func() *signing.Keyrings
	bundled []artifact.File // firmware that comes with the driver
	// conflict says which of that firmware cannot be made visible because another file is in its place.
	conflict func() *accel.Problem
	// ours are the symbols of the modules that are loaded earlier, with their versions, 0 if unknown.
	ours map[string]uint32
}

// Target describes what modules are judged for.
type Target struct {
	Host  *host.Host
	Log   *slog.Logger
	Def   *accel.Definition
	Facts accel.Facts
	// Source is where the modules come from; Key is their entry in the store, empty for other sources.
	Source accel.SourceType
	Key    string
	// Firmware comes with the driver. Conflict says which of it cannot be made visible to the kernel because another
	// file is in its place; it returns nil if there is none.
	Firmware []artifact.File
	Conflict func() *accel.Problem
}

func inspect(t Target) *inspection {
	k := t.Facts.Kernel
	in := &inspection{
		h: t.Host, log: t.Log, def: t.Def, kernel: k, index: NewIndex(t.Host, k.Release), running: !k.NotRunning,
		rules: readModprobe(t.Host), bundled: t.Firmware, ours: map[string]uint32{},
	}
	// A module of the store was compared when it was built, and its key identifies this kernel.
	if t.Source != accel.SourceStore {
		in.flags = in.index.Flags()
	}
	in.conflict = sync.OnceValue(t.Conflict)
	in.keys = sync.OnceValue(func() *signing.Keyrings {
		return signing.ReadKeyrings(t.Host, t.Log, t.Def,
			in.index.signer())
	})
	return in
}

// subject is one module file that is being judged.
type subject struct {
	*Image
	wants    string // the name that it must have
	words    []Parameter
	firmware []string // files that must exist
}

// Check is the result of one check before a load.
type Check struct {
	// Name is "file", "architecture", "name", "vermagic", "modprobe.d", "parameters", "firmware", "dependencies",
	// "signature" or "symbols".
	Name string `json:"name"`
	// Detail says what was found; may be empty.
	Detail string `json:"detail,omitempty"`
	// Problem is why the module must not be loaded; nil if the check passed.
	Problem *accel.Problem `json:"problem,omitempty"`
}

// verify runs the checks of one module, in order. It stops at the first failure, unless seen is set to receive all
// results.
func (in *inspection) verify(s *subject, seen func(Check)) *accel.Problem {
	var first *accel.Problem
	for _, c := range []struct {
		name  string
		judge func(*subject) (string, *accel.Problem)
	}{
		{"architecture", in.checkArchitecture},
		{"name", in.checkName},
		{"vermagic", in.checkVermagic},
		{"modprobe.d", in.checkRules},
		{"parameters", in.checkParameters},
		{"firmware", in.checkFirmware},
		{"signature", in.checkSignature},
		{"symbols", in.checkSymbols},
	} {
		detail, problem := c.judge(s)
		if seen != nil {
			seen(Check{Name: c.name, Detail: detail, Problem: problem})
		}
		if first == nil {
			first = problem
		}
		if first != nil && seen == nil {
			return first
		}
	}
	return first
}

func (in *inspection) checkArchitecture(s *subject) (string, *accel.Problem) {
	if machine, _, known := elfMachine(in.kernel.Arch); known && s.machine != machine {
		return "", accel.Problemf(accel.ArchMismatch, "module file %q is for %v, the machine is %s", s.Path, s.machine,
			in.kernel.Arch)
	}
	return s.machine.String(), nil
}

func (in *inspection) checkName(s *subject) (string, *accel.Problem) {
	if s.Name != "" && s.Name != Normal(s.wants) {
		return "", accel.Problemf(accel.ModuleInvalid, "module file %q holds module %q, not %q", s.Path, s.Name,
			s.wants)
	}
	s.Name = Normal(s.wants)
	return s.Name, nil
}

func (in *inspection) checkVermagic(s *subject) (string, *accel.Problem) {
	problem := CheckVermagic(s.Image, in.kernel, in.flags)
	release, flags, _ := strings.Cut(s.Vermagic, " ")
	if problem == nil || release == in.kernel.Release {
		return s.Vermagic, problem
	}
	const weak = "weak" // of driver.kabi
	if in.def.Driver.KABI != weak {
		if strings.Contains(s.Path, "/weak-updates/") {
			problem.Message += "; driver.kabi: weak accepts it when every symbol version agrees"
		}
		return s.Vermagic, problem
	}
	if own := in.index.Flags(); own != "" && strings.Join(strings.Fields(flags), " ") != own {
		problem.Message += fmt.Sprintf(", and with %q, the kernel's own modules with %q", flags, own)
		return s.Vermagic, problem
	}
	if refusal := in.checkWeak(s); refusal != "" {
		problem.Message += ", and " + refusal
		return s.Vermagic, problem
	}
	return s.Vermagic + "; every symbol version agrees with the running kernel (kabi: weak)", nil
}

// CheckVermagic compares the release and the flags of a module. The release must be the kernel's, and the flags must
// be own, those of the kernel's own modules; an empty own skips the flags.
func CheckVermagic(m *Image, k accel.Kernel, own string) *accel.Problem {
	release, flags, _ := strings.Cut(m.Vermagic, " ")
	if release != k.Release {
		return accel.Problemf(accel.KernelMismatch, "module file %q was built for kernel %q, wanted is %q", m.Path,
			release, k.Release)
	}
	if own != "" && strings.Join(strings.Fields(flags), " ") != own {
		return accel.Problemf(accel.KernelMismatch,
			"module file %q was built with %q, the kernel's own modules with %q", m.Path, flags, own)
	}
	return nil
}

func (in *inspection) checkRules(s *subject) (string, *accel.Problem) {
	return strings.Join(in.rules.remarks(s.Name), "; "), in.rules.veto(s.Name)
}

// checkParameters refuses parameters that the kernel would ignore or refuse. An option of modprobe.d that the module
// does not have may be for another version of the module. It is dropped: modprobe would pass it on, and the kernel
// would ignore it.
func (in *inspection) checkParameters(s *subject) (string, *accel.Problem) {
	var kept []Parameter
	var left []string
	for _, p := range s.words {
		name, kind, known := s.parameter(p.Name)
		if !known && p.From != fromDefinition {
			left = append(left, fmt.Sprintf("%q of %s is left out: the module has no such parameter", p.Name, p.From))
			continue
		}
		if !known {
			return "", accel.Problemf(accel.ParameterUnknown, "module %q has no parameter %q", s.wants, p.Name)
		}
		if why := parameterRefused(kind, p.Value); why != "" {
			return "", accel.Problemf(accel.ParameterInvalid, "parameter %q of module %q is %q (%s): %s", name, s.wants,
				p.Value, p.From, why)
		}
		p.Name = name
		kept = append(kept, p)
	}
	s.words = kept
	var out []string
	for _, p := range kept {
		out = append(out, fmt.Sprintf("%s=%s (%s)", p.Name, p.Value, p.From))
	}
	return strings.Join(append(out, left...), "; "), nil
}

func (in *inspection) checkSignature(s *subject) (string, *accel.Problem) {
	return signing.Policy{Kernel: in.kernel, Keys: in.keys}.Judge(s.Name, s.Path, s.Signature)
}
