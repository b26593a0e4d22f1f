package kmod

import (
	"cmp"
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
	Target
	kernel accel.Kernel
	index  *Index
	rules  *modprobe
	keys   func() *signing.Keyrings
	// hostKeys are keys without the certificate that the definition names.
	hostKeys func() *signing.Keyrings
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
	// Require says that the host demands signatures (trust.require). Vouched says that the signer of the driver as a
	// whole was judged, so that its own modules need no signature.
	Require, Vouched bool
	// Firmware comes with the driver. Conflict says which of it cannot be made visible to the kernel because another
	// file is in its place; it returns nil if there is none.
	Firmware []artifact.File
	Conflict func() *accel.Problem
}

func inspect(t Target) inspection {
	t.Conflict = sync.OnceValue(t.Conflict)
	k := t.Facts.Kernel
	index := NewIndex(t.Host, k.Release)
	return inspection{
		Target: t, kernel: k, index: index, rules: readModprobe(t.Host), ours: map[string]uint32{},
		keys: sync.OnceValue(func() *signing.Keyrings {
			return signing.ReadKeyrings(t.Host, t.Log, t.Def, index.signer())
		}),
		hostKeys: sync.OnceValue(func() *signing.Keyrings { return hostKeys(t.Host, t.Log, index) }),
	}
}

// hostKeys are the kernel's keys, and the certificates of which no definition has a say.
func hostKeys(h *host.Host, log *slog.Logger, x *Index) *signing.Keyrings {
	return signing.ReadKeyrings(h, log, &accel.Definition{}, x.signer())
}

// Signed refuses a module that is not known to be signed by a key of the kernel.
func Signed(h *host.Host, log *slog.Logger, k accel.Kernel, m *Image) *accel.Problem {
	keys := func() *signing.Keyrings { return hostKeys(h, log, NewIndex(h, k.Release)) }
	return signing.Demand(k, keys, m.Path, m.Signature)
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

// verify runs the checks of one module, in order, and returns the first problem.
func (p *planner) verify(c *candidate) *accel.Problem {
	var first *accel.Problem
	for _, check := range []struct {
		name  string
		judge func(*candidate) (string, *accel.Problem)
	}{
		{"architecture", p.checkArchitecture},
		{"name", p.checkName},
		{"vermagic", p.checkVermagic},
		{"modprobe.d", p.checkRules},
		{"parameters", p.checkParameters},
		{"firmware", p.checkFirmware},
		{"signature", p.checkSignature},
		{"symbols", p.checkSymbols},
	} {
		detail, problem := check.judge(c)
		p.tell(c.module.Name, c.Path, Check{Name: check.name, Detail: detail, Problem: problem})
		first = cmp.Or(first, problem)
	}
	return first
}

func (in *inspection) checkArchitecture(c *candidate) (string, *accel.Problem) {
	if machine, known := elfMachine(in.kernel.Arch); known && c.machine != machine {
		return "", accel.Problemf(accel.ArchMismatch, "module file %q is for %v, the machine is %s", c.Path, c.machine,
			in.kernel.Arch)
	}
	return c.machine.String(), nil
}

func (in *inspection) checkName(c *candidate) (string, *accel.Problem) {
	if c.Name != "" && c.Name != Normal(c.module.Name) {
		return "", accel.Problemf(accel.ModuleInvalid, "module file %q holds module %q, not %q", c.Path, c.Name,
			c.module.Name)
	}
	c.Name = Normal(c.module.Name)
	return c.Name, nil
}

func (in *inspection) checkVermagic(c *candidate) (string, *accel.Problem) {
	problem := CheckVermagic(c.Image, in.kernel, c.flags)
	release, flags, _ := strings.Cut(c.Vermagic, " ")
	if problem == nil || release == in.kernel.Release {
		return c.Vermagic, problem
	}
	const weak = "weak" // of driver.kabi
	if in.Def.Driver.KABI != weak {
		if strings.Contains(c.Path, "/weak-updates/") {
			problem.Message += "; driver.kabi: weak accepts it when every symbol version agrees"
		}
		return c.Vermagic, problem
	}
	if own := in.index.Flags(); own != "" && strings.Join(strings.Fields(flags), " ") != own {
		problem.Message += fmt.Sprintf(", and with %q, the kernel's own modules with %q", flags, own)
		return c.Vermagic, problem
	}
	if refusal := in.checkWeak(c); refusal != "" {
		problem.Message += ", and " + refusal
		return c.Vermagic, problem
	}
	return c.Vermagic + "; every symbol version agrees with the running kernel (kabi: weak)", nil
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

func (in *inspection) checkRules(c *candidate) (string, *accel.Problem) {
	return strings.Join(in.rules.remarks(c.Name), "; "), in.rules.veto(c.Name)
}

// checkParameters refuses parameters that the kernel would ignore or refuse. An option of modprobe.d that the module
// does not have may be for another version of the module. It is dropped: modprobe would pass it on, and the kernel
// would ignore it.
func (in *inspection) checkParameters(c *candidate) (string, *accel.Problem) {
	var kept []Parameter
	var out, left []string
	for _, p := range c.words {
		name, kind, known := c.parameter(p.Name)
		if !known && p.From != fromDefinition {
			left = append(left, fmt.Sprintf("%q of %s is left out: the module has no such parameter", p.Name, p.From))
			continue
		}
		if !known {
			return "", accel.Problemf(accel.ParameterUnknown, "module %q has no parameter %q", c.module.Name, p.Name)
		}
		if why := parameterRefused(kind, p.Value); why != "" {
			return "", accel.Problemf(accel.ParameterInvalid, "parameter %q of module %q is %q (%s): %s", name, c.module.Name,
				p.Value, p.From, why)
		}
		p.Name = name
		kept = append(kept, p)
		out = append(out, fmt.Sprintf("%s=%s (%s)", p.Name, p.Value, p.From))
	}
	c.words = kept
	return strings.Join(append(out, left...), "; "), nil
}

func (in *inspection) checkSignature(c *candidate) (string, *accel.Problem) {
	detail, problem := signing.Judge(in.kernel, in.keys, c.Name, c.Path, c.Signature)
	if problem == nil && in.Require && (c.prior || !in.Vouched) {
		problem = signing.Demand(in.kernel, in.hostKeys, c.Path, c.Signature)
	}
	return detail, problem
}
