package firmware

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host/ledger"
)

// own returns the directory for firmware that came with drivers in the store.
func (fw *Firmware) own() string { return path.Join(fw.stateDir, "firmware") }

// updates is where the kernel looks for firmware added by an administrator.
const updates = "/lib/firmware/updates"

// Of returns the firmware that came with an entry of the store.
func (fw *Firmware) Of(key string) []artifact.File {
	if key == "" {
		return nil
	}
	m, err := fw.store.Manifest(key)
	if err != nil {
		return nil // its modules could not have been planned either
	}
	return m.Firmware
}

// sum returns the SHA-256 of a firmware file as the kernel sees it, which is after decompression.
func (fw *Firmware) sum(file string) (string, error) {
	f, err := fw.h.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if ext := path.Ext(file); ext != ".xz" && ext != ".zst" {
		return store.Digest(f)
	}
	const most = 1 << 30
	sum := sha256.New()
	if err := kmod.Unpack(sum, f, file, most); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Placeable returns the firmware of an entry that the kernel would not find yet. Another file with different content
// in its place is a FirmwareConflict, unless it came with another driver of the store, which this one replaces.
func (fw *Firmware) Placeable(bundled []artifact.File, release string) ([]artifact.File, *accel.Problem) {
	var out []artifact.File
	for _, f := range bundled {
		if !filepath.IsLocal(f.Path) {
			return nil, accel.Problemf(accel.ArtifactInvalid, "firmware %q leaves its directory", f.Path)
		}
		there := kmod.FindFirmware(fw.h, f.Path, release)
		if there == "" {
			out = append(out, f)
			continue
		}
		sum, err := fw.sum(there)
		switch {
		case err != nil:
			return nil, accel.ProblemOf(err, "cannot read firmware %q", there)
		case sum == f.SHA256:
		case fw.placed(there):
			out = append(out, f)
		default:
			return nil, accel.Problemf(accel.FirmwareConflict,
				"firmware %q is in %q with other content than the driver brings", f.Path, there)
		}
	}
	return out, nil
}

// placed reports whether acceld put a firmware file there and nobody has changed it since.
func (fw *Firmware) placed(file string) bool {
	if strings.HasPrefix(file, fw.own()+"/") {
		return true
	}
	if !strings.HasPrefix(file, updates+"/") {
		return false
	}
	out, err := fw.ledger.Undo(ledger.UndoOptions{
		DryRun: true,
		Only:   func(p string) bool { return strings.HasSuffix(p, strings.TrimPrefix(file, "/lib")) },
	})
	return err == nil && len(out) == 1 && out[0].Action == ledger.Removed
}

// Place makes the firmware of a plan visible to the kernel: through the kernel's own directory setting if it is
// unused, else among the administrator's additions. It never changes a setting that acceld does not own.
func (fw *Firmware) Place(facts accel.Facts, p *kmod.Plan) *accel.Problem {
	files, problem := fw.Placeable(fw.Of(p.Key), facts.Kernel.Release)
	if problem != nil || len(files) == 0 {
		return problem
	}
	custom, err := fw.h.ReadAttribute(kmod.FirmwarePath)
	own := err == nil && (custom == "" || custom == fw.own())
	for _, f := range files {
		content, err := fw.h.ReadFile(path.Join(fw.store.EntryDir(p.Key), "firmware", f.Path))
		if err != nil {
			return accel.ProblemOf(err, "cannot read firmware %q of driver %q", f.Path, p.Key)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != f.SHA256 {
			return accel.Problemf(accel.DigestMismatch, "firmware %q of driver %q is not the one that was stored",
				f.Path, p.Key)
		}
		if own {
			to := path.Join(fw.own(), f.Path)
			err = errors.Join(fw.h.MkdirAll(path.Dir(to), 0o755), fw.h.WriteFile(to, content, 0o644))
		} else {
			err = fw.ledger.WriteFile(path.Join(updates, f.Path), content, 0o644)
		}
		if err != nil {
			return accel.Problemf(accel.ReasonForError(err, accel.FirmwareMissing),
				"cannot put firmware %q where the kernel looks: %v", f.Path, err)
		}
	}
	if own {
		if err := fw.ledger.Attribute(kmod.FirmwarePath, fw.own()); err != nil {
			return accel.ProblemOf(err, "cannot tell the kernel where firmware is")
		}
	}
	fw.log.Info("firmware placed", "driver", p.Key, "files", len(files))
	return nil
}
