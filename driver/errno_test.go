package driver

import (
	"syscall"
	"testing"

	"github.com/acceld/acceld/accel"
)

func errNoSpace() error { return syscall.ENOSPC }

// TestLoadProblem has the rows that were measured on a running kernel.
func TestLoadProblem(t *testing.T) {
	for _, c := range []struct {
		errno syscall.Errno
		c     circumstances
		want  accel.Reason
	}{
		{syscall.EKEYREJECTED, circumstances{signed: true, log: []string{"Loading of module with unavailable key is rejected"}}, accel.KeyUnknown},
		{syscall.EKEYREJECTED, circumstances{log: []string{"Loading of unsigned module is rejected"}}, accel.Unsigned},
		{syscall.EKEYREJECTED, circumstances{}, accel.Unsigned},
		{syscall.EKEYREJECTED, circumstances{signed: true}, accel.KeyUnknown},
		{syscall.ENOKEY, circumstances{signed: true}, accel.KeyUnknown},
		{syscall.EPERM, circumstances{modulesDisabled: true}, accel.ModulesDisabled},
		{syscall.EPERM, circumstances{lockdown: "integrity"}, accel.LockedDown},
		{syscall.EPERM, circumstances{log: []string{"Lockdown: acceld: unsigned module loading is restricted"}}, accel.LockedDown},
		{syscall.EPERM, circumstances{lockdown: "none"}, accel.PermissionDenied},
		{syscall.EACCES, circumstances{}, accel.PermissionDenied},
		{syscall.ENOEXEC, circumstances{log: []string{"edu: disagrees about version of symbol module_layout"}}, accel.SymbolMismatch},
		{syscall.ENOEXEC, circumstances{log: []string{"edu: version magic '5.0 SMP' should be '6.1 SMP'"}}, accel.KernelMismatch},
		{syscall.ENOEXEC, circumstances{}, accel.ModuleInvalid},
		{syscall.EINVAL, circumstances{log: []string{"edu: Unknown symbol printk (err -22)"}}, accel.SymbolMismatch},
		{syscall.EINVAL, circumstances{log: []string{"edu: `x' invalid for parameter `n'"}}, accel.ParameterInvalid},
		{syscall.ENOSPC, circumstances{log: []string{"edu: `xxxx' too large for parameter `n'"}}, accel.ParameterInvalid},
		{syscall.EINVAL, circumstances{}, accel.LoadFailed},
		{syscall.ENOENT, circumstances{log: []string{"edu: Unknown symbol frob (err -2)"}}, accel.SymbolMissing},
		{syscall.ENODEV, circumstances{}, accel.ProbeFailed},
		{syscall.EIO, circumstances{}, accel.ProbeFailed},
		{syscall.ENOMEM, circumstances{}, accel.LoadFailed},
	} {
		c.c.module = "edu"
		if p := loadProblem(c.errno, c.c); p.Reason != c.want {
			t.Errorf("%v with %+v: %v", c.errno, c.c, p)
		}
	}
	for errno, want := range map[syscall.Errno]accel.Reason{syscall.EAGAIN: accel.InUse, syscall.EBUSY: accel.RebootRequired, syscall.EPERM: accel.PermissionDenied} {
		if p := unloadProblem("edu", errno, false); p.Reason != want {
			t.Error(errno, p)
		}
	}
}

func TestKernelLine(t *testing.T) {
	log := []string{"usb 1-1: error of somebody else", "edu: loading out-of-tree module taints kernel.", "edu 0000:01:00.0: enabling device", "edu: probe of 0000:01:00.0 failed with error -5", "edu: later"}
	if got := kernelLine(log, "edu"); got != log[3] {
		t.Error(got)
	}
	if got := kernelLine(log[:3], "edu"); got != log[2] {
		t.Error(got)
	}
	if got := kernelLine(nil, "edu"); got != "" {
		t.Error(got)
	}
}
