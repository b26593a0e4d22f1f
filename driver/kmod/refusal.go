package kmod

import (
	"slices"
	"strings"
	"syscall"

	"github.com/acceld/acceld/accel"
)

// Circumstances distinguish refusals for which the kernel returns the same errno.
type Circumstances struct {
	Module          string
	Signed          bool
	Lockdown        string
	ModulesDisabled bool
	Log             []string // kernel log lines since before the load
}

// LoadProblem turns the kernel's refusal of a load into a typed problem. The cases were measured on a running kernel:
// one errno has several causes, and only the kernel log or the machine's policy tells them apart.
func LoadProblem(errno syscall.Errno, c Circumstances) *accel.Problem {
	reason := accel.LoadFailed
	switch errno {
	case syscall.EKEYREJECTED, syscall.ENOKEY, syscall.EBADMSG:
		reason = accel.KeyUnknown
		if c.says("unsigned") || !c.Signed && !c.says("unavailable key") {
			reason = accel.Unsigned
		}
	case syscall.EPERM:
		switch {
		case c.ModulesDisabled:
			reason = accel.ModulesDisabled
		case c.says("Lockdown") || c.Lockdown != "" && c.Lockdown != "none":
			reason = accel.LockedDown
		default:
			reason = accel.PermissionDenied
		}
	case syscall.EACCES:
		reason = accel.PermissionDenied
	case syscall.ENOEXEC:
		switch {
		case c.says("disagrees about version"):
			reason = accel.SymbolMismatch
		case c.says("version magic"):
			reason = accel.KernelMismatch
		default:
			reason = accel.ModuleInvalid
		}
	case syscall.ENOENT:
		if c.says("Unknown symbol") {
			reason = accel.SymbolMissing
		}
	case syscall.ENODEV, syscall.EIO, syscall.ENXIO:
		reason = accel.ProbeFailed
	case syscall.EINVAL:
		if c.says("disagrees about version", "Unknown symbol") {
			reason = accel.SymbolMismatch
		}
	}
	if c.says("invalid for parameter", "too large for parameter") {
		reason = accel.ParameterInvalid // regardless of the errno that the parameter's setter chose
	}
	return accel.Problemf(reason, "cannot load module %q: %v%s", c.Module, errno, c.Quote())
}

// says reports whether a kernel log line since before the load contains one of texts.
func (c Circumstances) says(texts ...string) bool {
	return slices.ContainsFunc(c.Log, func(l string) bool { return containsAny(l, texts...) })
}

func containsAny(line string, texts ...string) bool {
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(line, t) })
}

// Quote returns the most informative line of the kernel log, ready to be appended to a sentence.
func (c Circumstances) Quote() string {
	if l := KernelLine(c.Log, c.Module); l != "" {
		return "; the kernel says: " + l
	}
	return ""
}

// KernelLine returns the first line of a log that reports a failure of the module, or else the last line that names
// it.
func KernelLine(log []string, module string) string {
	last := ""
	for _, l := range log {
		if !containsAny(l, module, "Lockdown", "BUG:", "Oops", "module") ||
			containsAny(l, "tainting kernel", "taints kernel") { // logged for every out-of-tree module
			continue
		}
		if containsAny(l, "error", "failed", "Unknown symbol", "disagrees", "invalid for parameter", "too large",
			"unsigned", "unavailable key", "Lockdown", "version magic", "rejected", "BUG:", "Oops") {
			return l
		}
		last = l
	}
	return last
}

// UnloadProblem turns the kernel's refusal to remove a module into a typed problem.
func UnloadProblem(module string, errno syscall.Errno, modulesDisabled bool) *accel.Problem {
	reason := accel.LoadFailed
	switch errno {
	case syscall.EAGAIN:
		reason = accel.InUse
	case syscall.EBUSY:
		reason = accel.RebootRequired // it never became live, or its removal got stuck: no call can remove it
	case syscall.EPERM:
		reason = accel.PermissionDenied
		if modulesDisabled {
			reason = accel.ModulesDisabled
		}
	}
	return accel.Problemf(reason, "cannot remove module %q: %v", module, errno)
}
