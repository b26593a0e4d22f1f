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

// closed reports whether dir is below stateDir, and only root can go through that: other parts of acceld may have
// created it so.
func (r *Runtime) closed(dir string) bool {
	st, err := r.host.Stat(stateDir)
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
func (r *Runtime) sum(h *host.Host, name string) (string, error) {
	st, err := h.Stat(name)
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	}
	key := path.Join(h.Root(), name)
	if d, ok := r.digests[key]; ok && d.size == st.Size() && d.time.Equal(st.ModTime()) {
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
	r.digests[key] = d
	return d.sum, nil
}

// locateProgram returns where the hook's program is on the host, or where it would be installed. Without want.Hook
// the path is empty and counts as installed.
func (r *Runtime) locateProgram(want accel.Want) (program string, installed bool, p *accel.Problem) {
	if !want.Hook {
		return "", true, nil
	}
	if r.program == "" {
		return "", false, accel.Problemf(accel.HookMissing,
			"cannot install the hook: its program is not part of this installation")
	}
	sum, err := r.sum(r.self, r.program)
	if err != nil {
		return "", false, accel.Problemf(accel.HookMissing, "cannot install the hook: %v", err)
	}
	for _, dir := range programDirs() {
		program := programPath(dir, sum)
		st, err := r.host.Stat(program)
		if err != nil || st.Mode().Perm() != 0o755 || r.closed(dir) {
			continue
		}
		if there, err := r.sum(r.host, program); err == nil && there == sum {
			return program, true, nil
		}
	}
	return programPath(programDirs()[0], sum), false, nil
}

// installProgram installs the hook's program on the host, in the first writable directory, and returns its path.
func (r *Runtime) installProgram(want accel.Want) (string, *accel.Problem) {
	program, installed, p := r.locateProgram(want)
	if p != nil || installed {
		return program, p
	}
	data, err := r.self.ReadFile(r.program)
	if err != nil {
		return "", accel.Problemf(accel.HookMissing, "cannot install the hook: %v", err)
	}
	sum := sha256.Sum256(data)
	for _, dir := range programDirs() {
		program = programPath(dir, hex.EncodeToString(sum[:]))
		if p = r.write(program, data, 0o755); p == nil && r.closed(dir) {
			p = r.openStateDir()
		}
		if p == nil || !elsewhere(p) {
			return program, p
		}
	}
	return "", p
}

// openStateDir makes stateDir passable. What else is in it stays closed.
func (r *Runtime) openStateDir() *accel.Problem {
	st, err := r.host.Stat(stateDir)
	if err == nil {
		err = r.host.Chmod(stateDir, st.Mode()|passable)
	}
	if err != nil {
		return r.problem("let users through", stateDir, err)
	}
	return nil
}

// elsewhere reports whether a write may succeed in another directory.
func elsewhere(p *accel.Problem) bool {
	return p.Reason == accel.ReadOnly || p.Reason == accel.ViewOutdated || p.Reason == accel.PermissionDenied
}

// programs returns the programs that this package has installed on the host, oldest first.
func (r *Runtime) programs() []string {
	type installed struct {
		path string
		time time.Time
	}
	var all []installed
	for _, dir := range programDirs() {
		entries, err := r.host.ReadDir(dir)
		if err != nil {
			continue // usually the directory does not exist
		}
		for _, e := range entries {
			program := path.Join(dir, e.Name(), programName)
			if st, err := r.host.Stat(program); err == nil && isVersion(e.Name()) {
				all = append(all, installed{program, st.ModTime()})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b installed) int { return a.time.Compare(b.time) })
	var paths []string
	for _, i := range all {
		paths = append(paths, i.path)
	}
	return paths
}

func isVersion(name string) bool {
	return len(name) == 12 && strings.Trim(name, "0123456789abcdef") == ""
}

// removePrograms removes the programs that nothing on the host names any more, except keep and the newest of the
// others: a container that is being created may be about to start it. With an empty keep it removes all of them.
func (r *Runtime) removePrograms(keep string) *accel.Problem {
	named := append(r.programsInSpecs(), keep, r.programInJSON())
	old := slices.DeleteFunc(r.programs(), func(p string) bool { return slices.Contains(named, p) })
	if keep != "" && len(old) > 0 {
		old = old[:len(old)-1]
	}
	for _, program := range old {
		if p := r.remove(program); p != nil {
			return p
		}
		for _, dir := range []string{path.Dir(program), path.Dir(path.Dir(program))} {
			if entries, err := r.host.ReadDir(dir); err != nil || len(entries) > 0 {
				break
			}
			if p := r.remove(dir); p != nil {
				return p
			}
		}
	}
	return nil
}
