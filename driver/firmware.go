package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// firmwarePath is the directory that the kernel looks into first, for every driver; empty by default.
const firmwarePath = "/sys/module/firmware_class/parameters/path"

// firmwareDirs are where the kernel looks for firmware, in order (fw_path, drivers/base/firmware_loader/main.c).
func firmwareDirs(h *host.Host, release string) []string {
	dirs := []string{"/lib/firmware/updates/" + release, "/lib/firmware/updates", "/lib/firmware/" + release, "/lib/firmware"}
	if custom, err := h.ReadString(firmwarePath); err == nil && custom != "" {
		dirs = append([]string{custom}, dirs...)
	}
	return dirs
}

// findFirmware returns the file that the kernel would take for a firmware name, "" when there is none: in all the
// directories the plain file first, then the compressed ones, as _request_firmware does.
func findFirmware(h *host.Host, name, release string) string {
	dirs := firmwareDirs(h, release)
	for _, suffix := range []string{"", ".zst", ".xz"} {
		for _, dir := range dirs {
			if file := path.Join(dir, name+suffix); h.Exists(file) {
				return file
			}
		}
	}
	return ""
}

// ownFirmware is the directory of the firmware that came with drivers of the store.
func (d *Driver) ownFirmware() string { return path.Join(d.o.StateDir, "firmware") }

// updates is where the kernel looks for firmware that an administrator adds.
const updates = "/lib/firmware/updates"

// targetOf is what the modules of a source are judged for.
func (d *Driver) targetOf(def *accel.Definition, facts accel.Facts, source accel.SourceType, key string) target {
	bundled := d.bundledFirmware(key)
	return target{host: d.h, log: d.log, def: def, facts: facts, source: source, key: key, firmware: bundled, conflict: func() *accel.Problem {
		_, problem := d.placeable(bundled, facts.Kernel.Release)
		return problem
	}}
}

// bundledFirmware returns the firmware that came with an entry of the store.
func (d *Driver) bundledFirmware(key string) []artifact.File {
	if key == "" {
		return nil
	}
	m, err := d.manifest(key)
	if err != nil {
		return nil // its modules could not have been planned either
	}
	return m.Firmware
}

// firmwareSum returns the SHA-256 of what the kernel gets of a firmware file, which may be compressed.
func (d *Driver) firmwareSum(file string) (string, error) {
	f, err := d.h.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if ext := path.Ext(file); ext != ".xz" && ext != ".zst" {
		return digest(f)
	}
	const most = 1 << 30
	sum := sha256.New()
	if err := unpack(sum, f, file, most); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// placeable returns the firmware of an entry that the kernel would not find yet. Other content in its place is
// FirmwareConflict, unless it is a file that came with another driver of the store, which this one replaces.
func (d *Driver) placeable(bundled []artifact.File, release string) ([]artifact.File, *accel.Problem) {
	var out []artifact.File
	for _, f := range bundled {
		if !filepath.IsLocal(f.Path) {
			return nil, accel.Problemf(accel.ArtifactInvalid, "firmware %q leaves its directory", f.Path)
		}
		there := findFirmware(d.h, f.Path, release)
		if there == "" {
			out = append(out, f)
			continue
		}
		sum, err := d.firmwareSum(there)
		switch {
		case err != nil:
			return nil, accel.ProblemOf(err, "cannot read firmware %q", there)
		case sum == f.SHA256:
		case d.placed(there):
			out = append(out, f)
		default:
			return nil, accel.Problemf(accel.FirmwareConflict, "firmware %q is in %q with other content than the driver brings", f.Path, there)
		}
	}
	return out, nil
}

// placed reports whether a firmware file is one that acceld put there and nobody has changed since.
func (d *Driver) placed(file string) bool {
	if strings.HasPrefix(file, d.ownFirmware()+"/") {
		return true
	}
	if !strings.HasPrefix(file, updates+"/") {
		return false
	}
	out, err := d.ledger.Undo(ledger.UndoOptions{DryRun: true, Only: func(p string) bool { return strings.HasSuffix(p, strings.TrimPrefix(file, "/lib")) }})
	return err == nil && len(out) == 1 && out[0].Action == ledger.Removed
}

// placeFirmware makes the firmware of a plan visible to the kernel: by the kernel's own directory setting where nobody
// uses it, else among the administrator's additions. A setting of somebody else is never changed.
func (d *Driver) placeFirmware(facts accel.Facts, p *plan) *accel.Problem {
	files, problem := d.placeable(d.bundledFirmware(p.key), facts.Kernel.Release)
	if problem != nil || len(files) == 0 {
		return problem
	}
	custom, err := d.h.ReadString(firmwarePath)
	own := err == nil && (custom == "" || custom == d.ownFirmware())
	for _, f := range files {
		content, err := d.h.ReadFile(path.Join(d.entryDir(p.key), "firmware", f.Path))
		if err != nil {
			return accel.ProblemOf(err, "cannot read firmware %q of driver %q", f.Path, p.key)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != f.SHA256 {
			return accel.Problemf(accel.DigestMismatch, "firmware %q of driver %q is not the one that was stored", f.Path, p.key)
		}
		if own {
			to := path.Join(d.ownFirmware(), f.Path)
			err = errors.Join(d.h.MkdirAll(path.Dir(to), 0o755), d.h.WriteFile(to, content, 0o644))
		} else {
			err = d.ledger.WriteFile(path.Join(updates, f.Path), content, 0o644)
		}
		if err != nil {
			return accel.Problemf(accel.ReasonForError(err, accel.FirmwareMissing), "cannot put firmware %q where the kernel looks: %v", f.Path, err)
		}
	}
	if own {
		if err := d.ledger.Attribute(firmwarePath, d.ownFirmware()); err != nil {
			return accel.ProblemOf(err, "cannot tell the kernel where firmware is")
		}
	}
	d.log.Info("firmware placed", "driver", p.key, "files", len(files))
	return nil
}

// checkFirmware looks for the firmware files that the definition says a module needs, and at those that come with the
// driver. What the module itself names are the files of every device it knows: those are only counted.
func (in *inspection) checkFirmware(s *subject) (string, *accel.Problem) {
	if problem := in.conflict(); problem != nil {
		return "", problem
	}
	found := func(file string) bool {
		return findFirmware(in.h, file, in.kernel.Release) != "" || slices.ContainsFunc(in.bundled, func(f artifact.File) bool { return f.Path == file })
	}
	for _, file := range s.firmware {
		// A template may say that nothing is needed.
		if file != "" && !found(file) {
			return "", accel.Problemf(accel.FirmwareMissing, "module %q needs firmware %q, which is not below /lib/firmware", s.wants, file)
		}
	}
	there := 0
	for _, file := range s.image.firmware {
		if found(file) {
			there++
		}
	}
	switch {
	case len(s.image.firmware) > 0:
		return fmt.Sprintf("%d of %d files that the module may ask for", there, len(s.image.firmware)), nil
	case len(s.firmware) > 0:
		return fmt.Sprintf("all %d files", len(s.firmware)), nil
	}
	return "", nil
}
