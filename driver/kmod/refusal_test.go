package kmod

import (
	"syscall"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestLoadProblem has the rows that were measured on a running kernel.
func TestLoadProblem(t *testing.T) {
	for _, c := range []struct {
		errno syscall.Errno
		c     Circumstances
		want  accel.Reason
	}{
		{syscall.EKEYREJECTED, Circumstances{
			Signed: true,
			Log:    []string{"Loading of module with unavailable key is rejected"},
		}, accel.KeyUnknown},
		{syscall.EKEYREJECTED, Circumstances{Log: []string{"Loading of unsigned module is rejected"}}, accel.Unsigned},
		{syscall.EKEYREJECTED, Circumstances{}, accel.Unsigned},
		{syscall.EKEYREJECTED, Circumstances{Signed: true}, accel.KeyUnknown},
		{syscall.ENOKEY, Circumstances{Signed: true}, accel.KeyUnknown},
		{syscall.EPERM, Circumstances{ModulesDisabled: true}, accel.ModulesDisabled},
		{syscall.EPERM, Circumstances{Lockdown: "integrity"}, accel.LockedDown},
		{
			syscall.EPERM,
			Circumstances{Log: []string{"Lockdown: acceld: unsigned module loading is restricted"}},
			accel.LockedDown,
		},
		{syscall.EPERM, Circumstances{Lockdown: "none"}, accel.PermissionDenied},
		{syscall.EACCES, Circumstances{}, accel.PermissionDenied},
		{
			syscall.ENOEXEC,
			Circumstances{Log: []string{"edu: disagrees about version of symbol module_layout"}},
			accel.SymbolMismatch,
		},
		{
			syscall.ENOEXEC,
			Circumstances{Log: []string{"edu: version magic '5.0 SMP' should be '6.1 SMP'"}},
			accel.KernelMismatch,
		},
		{syscall.ENOEXEC, Circumstances{}, accel.ModuleInvalid},
		{syscall.EINVAL, Circumstances{Log: []string{"edu: Unknown symbol printk (err -22)"}}, accel.SymbolMismatch},
		{syscall.EINVAL, Circumstances{Log: []string{"edu: `x' invalid for parameter `n'"}}, accel.ParameterInvalid},
		{
			syscall.ENOSPC,
			Circumstances{Log: []string{"edu: `xxxx' too large for parameter `n'"}},
			accel.ParameterInvalid,
		},
		{syscall.EINVAL, Circumstances{}, accel.LoadFailed},
		{syscall.ENOENT, Circumstances{Log: []string{"edu: Unknown symbol frob (err -2)"}}, accel.SymbolMissing},
		{syscall.ENODEV, Circumstances{}, accel.ProbeFailed},
		{syscall.EIO, Circumstances{}, accel.ProbeFailed},
		{syscall.ENOMEM, Circumstances{}, accel.LoadFailed},
	} {
		c.c.Module = "edu"
		if p := LoadProblem(c.errno, c.c); p.Reason != c.want {
			t.Errorf("%v with %+v: %v", c.errno, c.c, p)
		}
	}
	for errno, want := range map[syscall.Errno]accel.Reason{
		syscall.EAGAIN: accel.InUse,
		syscall.EBUSY:  accel.RebootRequired, syscall.EPERM: accel.PermissionDenied,
	} {
		if p := UnloadProblem("edu", errno, false); p.Reason != want {
			t.Error(errno, p)
		}
	}
}

func TestKernelLine(t *testing.T) {
	log := []string{
		"usb 1-1: error of somebody else", "edu: loading out-of-tree module taints kernel.",
		"edu 0000:01:00.0: enabling device", "edu: probe of 0000:01:00.0 failed with error -5", "edu: later",
	}
	if got := KernelLine(log, "edu"); got != log[3] {
		t.Error(got)
	}
	if got := KernelLine(log[:3], "edu"); got != log[2] {
		t.Error(got)
	}
	if got := KernelLine(nil, "edu"); got != "" {
		t.Error(got)
	}
}
