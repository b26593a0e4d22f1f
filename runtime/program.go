package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const programName = "acceld-hook"

// programDirs are the directories for the hook's program, preferred first: immutable systems have a read-only /usr.
func programDirs() []string { return []string{"/usr/local/lib/acceld", path.Join(stateDir, "bin")} }

// stateDir is acceld's own directory on the disk.
const stateDir = "/var/lib/acceld"

// passable are the bits that everyone needs to reach a program below stateDir. The runtime of rootless containers runs
// the hook as its own user.
const passable fs.FileMode = 0o011

// hookProgram is the program of the hook: as this process sees it, and as installed on the host.
type hookProgram struct {
	*files
	self    *host.Host        // the file system of this process, where source is
	source  string            // the path of the acceld-hook binary; empty if there is none
	digests map[string]digest // by path, so that an unchanged file is hashed only once
}

// closed reports whether dir is below stateDir, and only root can go through that: other parts of acceld may have
// created it so.
func (hp *hookProgram) closed(dir string) bool {
	st, err := hp.host.Stat(stateDir)
	return path.Dir(dir) == stateDir && err == nil && st.Mode()&passable != passable
}

// programPath includes a digest of the content, so that an upgrade never replaces a program that a container in
// creation is about to start.
func programPath(dir, sum string) string { return path.Join(dir, sum[:12], programName) }

// ours reports whether this package installed a program.
func ours(program string) bool {
	return path.Base(program) == programName && slices.Contains(programDirs(), path.Dir(path.Dir(program)))
}

// digest is the SHA-256 of a file with this size, in bytes, and modification time.
type digest struct {
	size int64
	time time.Time
	sum  string
}

// sum returns the SHA-256 of a regular file in hexadecimal. A file with unchanged size and time is not read again.
func (hp *hookProgram) sum(h *host.Host, name string) (string, error) {
	st, err := h.Stat(name)
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	}
	key := path.Join(h.Root(), name)
	if d, ok := hp.digests[key]; ok && d.size == st.Size() && d.time.Equal(st.ModTime()) {
		return d.sum, nil
	}
	f, err := h.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // opened for reading
	sha := sha256.New()
	if _, err := io.Copy(sha, f); err != nil {
		return "", err
	}
	d := digest{st.Size(), st.ModTime(), hex.EncodeToString(sha.Sum(nil))}
	hp.digests[key] = d
	return d.sum, nil
}

// locate returns where the hook's program is on the host, or where it would be installed. Without want.Hook the path
// is empty and counts as installed.
func (hp *hookProgram) locate(want accel.Want) (program string, installed bool, p *accel.Problem) {
	if !want.Hook {
		return "", true, nil
	}
	if hp.source == "" {
		return "", false, accel.Problemf(accel.HookMissing,
			"cannot install the hook: its program is not part of this installation")
	}
	sum, err := hp.sum(hp.self, hp.source)
	if err != nil {
		return "", false, accel.Problemf(accel.HookMissing, "cannot install the hook: %v", err)
	}
	for _, dir := range programDirs() {
		program := programPath(dir, sum)
		st, err := hp.host.Stat(program)
		if err != nil || st.Mode().Perm() != 0o755 || hp.closed(dir) {
			continue
		}
		if there, err := hp.sum(hp.host, program); err == nil && there == sum {
			return program, true, nil
		}
	}
	return programPath(programDirs()[0], sum), false, nil
}

// install installs the hook's program on the host, in the first writable directory, and returns its path.
func (hp *hookProgram) install(want accel.Want) (string, *accel.Problem) {
	program, installed, p := hp.locate(want)
	if p != nil || installed {
		return program, p
	}
	data, err := hp.self.ReadFile(hp.source)
	if err != nil {
		return "", accel.Problemf(accel.HookMissing, "cannot install the hook: %v", err)
	}
	sum := sha256.Sum256(data)
	for _, dir := range programDirs() {
		program = programPath(dir, hex.EncodeToString(sum[:]))
		if p = hp.write(program, data, 0o755); p == nil && hp.closed(dir) {
			p = hp.openStateDir()
		}
		if p == nil || !elsewhere(p) {
			return program, p
		}
	}
	return "", p
}

// openStateDir makes stateDir passable. What else is in it stays closed.
func (hp *hookProgram) openStateDir() *accel.Problem {
	st, err := hp.host.Stat(stateDir)
	if err == nil {
		err = hp.host.Chmod(stateDir, st.Mode()|passable)
	}
	if err != nil {
		return hp.problem("let users through", stateDir, err)
	}
	return nil
}

// elsewhere reports whether a write may succeed in another directory.
func elsewhere(p *accel.Problem) bool {
	return p.Reason == accel.ReadOnly || p.Reason == accel.ViewOutdated || p.Reason == accel.PermissionDenied
}

// installed returns the programs that this package has installed on the host, oldest first.
func (hp *hookProgram) installed() []string {
	var all []string
	times := map[string]time.Time{}
	for _, dir := range programDirs() {
		entries, err := hp.host.ReadDir(dir)
		if err != nil {
			continue // usually the directory does not exist
		}
		for _, e := range entries {
			program := path.Join(dir, e.Name(), programName)
			if st, err := hp.host.Stat(program); err == nil && isVersion(e.Name()) {
				all, times[program] = append(all, program), st.ModTime()
			}
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return times[a].Compare(times[b]) })
	return all
}

func isVersion(name string) bool {
	return len(name) == 12 && strings.Trim(name, "0123456789abcdef") == ""
}

// removeOld removes the programs that are not in named, which are those that files on the host name, except keep and
// the newest of the others: a container that is being created may be about to start it. With an empty keep it removes
// all of them.
func (hp *hookProgram) removeOld(keep string, named []string) *accel.Problem {
	old := slices.DeleteFunc(hp.installed(), func(p string) bool { return p == keep || slices.Contains(named, p) })
	if keep != "" && len(old) > 0 {
		old = old[:len(old)-1]
	}
	for _, program := range old {
		if p := hp.remove(program); p != nil {
			return p
		}
		for _, dir := range []string{path.Dir(program), path.Dir(path.Dir(program))} {
			if entries, err := hp.host.ReadDir(dir); err != nil || len(entries) > 0 {
				break
			}
			if p := hp.remove(dir); p != nil {
				return p
			}
		}
	}
	return nil
}
