package detect

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Kernel reads the running kernel and what decides whether it accepts a module, and what could not be read.
func Kernel(h *host.Host) (accel.Kernel, []string) {
	a := asker{h: h}
	k := accel.Kernel{
		Release: a.must(procOSRelease), Version: a.must(procVersion),
		Arch: a.may(procArch), BootID: a.must(procBootID),
	}
	if k.Arch == "" {
		if k.Arch = h.Kernel().Arch(); k.Arch == "" {
			a.note("cannot read %s: the file is not there and the machine is not running", procArch)
		}
	}
	if s := a.must(procTainted); s != "" {
		taint, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			a.note("cannot read %s: %q is not a number", procTainted, clip(s))
		}
		k.Taint = taint
	}
	notes, err := h.ReadBinary(kernelNotes)
	if err == nil {
		if k.BuildID = buildID(notes); k.BuildID == "" {
			err = fmt.Errorf("read %s: no build id in it", kernelNotes)
		}
	}
	if err != nil {
		a.note("cannot read the kernel's build id: %v", err)
	}
	k.Lockdown = bracketed(a.may(kernelLockdown))
	// A kernel without lockdown has no such file, and neither has a directory where securityfs is not mounted.
	k.LockdownUnknown = k.Lockdown == "" && !h.Exists(kernelLSM)
	k.SigEnforce = a.may(sigEnforce) == "Y"
	k.ModulesDisabled = a.may(procModulesDisabled) == "1"
	// Four bytes of attributes, then the value (Documentation/filesystems/efivarfs.rst).
	switch b, err := h.ReadBinary(secureBootVariable); {
	case err == nil:
		k.SecureBoot, k.SecureBootUnknown = len(b) == 5 && b[4] == 1, len(b) != 5
		if k.SecureBootUnknown {
			a.note("cannot tell whether secure boot is on: %s has %d bytes instead of 5", secureBootVariable, len(b))
		}
	case !errors.Is(err, fs.ErrNotExist):
		k.SecureBootUnknown = true
		a.note("cannot read whether secure boot is on: %v", err)
	default: // without EFI there is no secure boot; with it, its variables are there
		k.SecureBootUnknown = !h.Exists(sysFirmware) || h.Exists(efiFirmware) && !h.Exists(path.Dir(secureBootVariable))
	}
	k.Headers = headers(h, k.Release)
	return k, a.problems
}

// asker reads texts and records what it could not read.
type asker struct {
	h        *host.Host
	problems []string
}

func (a *asker) note(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

// must reports an absent file; may does not.
func (a *asker) must(name string) string { return a.read(name, true) }
func (a *asker) may(name string) string  { return a.read(name, false) }

func (a *asker) read(name string, must bool) string {
	s, err := a.h.ReadAttribute(name)
	if err == nil && !printable(s) {
		err = fmt.Errorf("read %s: not text", name)
	}
	if err != nil {
		if must || !errors.Is(err, fs.ErrNotExist) {
			a.note("cannot %v", err)
		}
		return ""
	}
	return s
}

// bracketed returns the selected word of a list such as "none [integrity] confidentiality".
func bracketed(s string) string {
	_, s, _ = strings.Cut(s, "[")
	s, _, _ = strings.Cut(s, "]")
	return s
}

// buildID finds the GNU build ID (type 3) among ELF notes, in either byte order.
func buildID(notes []byte) string {
	const typeBuildID, longest = 3, 64
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		for b := notes; len(b) >= 12; {
			nameSize, descSize, kind := int64(order.Uint32(b)), int64(order.Uint32(b[4:])), order.Uint32(b[8:])
			desc := 12 + (nameSize+3)&^3
			end := desc + (descSize+3)&^3
			if desc+descSize > int64(len(b)) {
				break
			}
			if kind == typeBuildID && string(b[12:12+nameSize]) == "GNU\x00" && descSize > 0 && descSize <= longest {
				return hex.EncodeToString(b[desc : desc+descSize])
			}
			b = b[min(end, int64(len(b))):]
		}
	}
	return ""
}

// headers returns the first directory that can build modules for release, with links resolved. A dangling link, which
// an uninstalled header package leaves behind, does not count.
func headers(h *host.Host, release string) string {
	if release == "" || strings.Contains(release, "/") {
		return ""
	}
	for _, dir := range headerDirs(release) {
		st, err := h.Stat(dir + "/Makefile")
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		for range 8 { // as the host sees it: one link at a time, each resolved inside the root
			link, err := h.Readlink(dir)
			if err != nil {
				break
			}
			if !path.IsAbs(link) {
				link = path.Join(path.Dir(dir), link)
			}
			dir = path.Clean(link)
		}
		return dir
	}
	return ""
}
