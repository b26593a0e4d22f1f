// Package kernels has the two kernels of the guests' disk: an older one for which NVIDIA's driver of Debian 12
// compiles, and a newer one for which it does not (test/nvidia). The distribution's archive forgets kernels, so their
// packages are kept in the cache once they have been fetched, and are installed from there. Without both of them a
// broken kernel upgrade cannot be shown; this package says so and does not take others in their place. A third kernel,
// the next Debian's, is for what newer kernels say and do differently.
package kernels

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/acceld/acceld/test/unproven"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/progress"
)

// olders are kernels of Debian 12 for which the source compiles, and newers those for which it does not, those that are
// taken first in front. The change was ported back between the last of the first and the last of the second:
// pci_resize_resource of include/linux/pci.h has four arguments from 6.1.0-53 on (read in the headers of 47, 50 and 53
// to 56, on 2026-11-23). The first of each were compiled for, on 2026-11-21.
func olders() []string { return []string{"6.1.0-47-amd64", "6.1.0-50-amd64"} }

func newers() []string {
	return []string{"6.1.0-56-amd64", "6.1.0-55-amd64", "6.1.0-54-amd64", "6.1.0-53-amd64"}
}

// Pair is what there is of the two kernels: releases, empty for one that cannot be had.
type Pair struct {
	Older, Newer string
	repository   string
}

// First is the pair that is taken where the archive has it.
func First() Pair { return Pair{Older: olders()[0], Newer: newers()[0]} }

// Of finds the pair among the releases that a disk has.
func Of(releases []string) Pair {
	first := func(wanted []string) string {
		for _, k := range wanted {
			if slices.Contains(releases, k) {
				return k
			}
		}
		return ""
	}
	return Pair{Older: first(olders()), Newer: first(newers())}
}

// Both tells whether it is a pair.
func (p Pair) Both() bool { return p.Older != "" && p.Newer != "" }

// Packages are those to install: the pair's, or those of the distribution's newest kernel where there is none.
func (p Pair) Packages() []string {
	if !p.Both() {
		return []string{"linux-image-amd64", "linux-headers-amd64"}
	}
	var all []string
	for _, k := range []string{p.Older, p.Newer} {
		all = append(all, "linux-image-"+k, "linux-headers-"+k)
	}
	return all
}

// Bootstrap are arguments with which mmdebstrap finds the packages that were kept, and leaves no trace of where.
func (p Pair) Bootstrap() []string {
	if !p.Both() || p.repository == "" {
		return nil
	}
	const list = `"$1/etc/apt/sources.list.d/kept.list"`
	return []string{
		"--setup-hook=echo " + quoted("deb [trusted=yes] copy:"+p.repository+" ./") + " >" + list,
		"--customize-hook=rm " + list,
	}
}

// What is the name, in the list of what was not checked, of what a pair is needed for.
const What = "a kernel upgrade that breaks a driver"

// Lost is the sentence about a pair that is none.
func (p Pair) Lost() string {
	var lost []string
	for _, side := range []struct {
		has  string
		list []string
	}{{p.Older, olders()}, {p.Newer, newers()}} {
		if side.has == "" {
			lost = append(lost, strings.Join(side.list, " or "))
		}
	}
	return "neither the cache nor the distribution's archive has kernel " + strings.Join(lost, ", nor ")
}

// Get returns the pair, from the cache and else from the archive, which it asks no more once the cache has it. It notes
// in the list of the tree at root whether there is one, and fails only when the archive does not answer.
func Get(ctx context.Context, root string, c cache.Dir, log *progress.Log) (Pair, error) {
	dir := c.Path("kernels")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Pair{}, fmt.Errorf("cannot keep kernels: %w", err)
	}
	_, unlock, err := c.Lock(ctx, "kernels")
	if err != nil {
		return Pair{}, err
	}
	defer unlock()
	pair := kept(dir)
	if !pair.Both() {
		err := log.Do("fetching the kernels' packages", func() error { return fetch(ctx, c, dir, missing(pair)) })
		if err != nil {
			return Pair{}, err
		}
		pair = kept(dir)
	}
	pair.repository = dir
	list := unproven.In(root)
	if !pair.Both() {
		log.Say("%s: taking its newest", pair.Lost())
		return pair, list.Note(What, pair.Lost())
	}
	return pair, list.Proven(What)
}

// kept is what of a pair the folder has: one folder for each release.
func kept(dir string) Pair {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Pair{}
	}
	var releases []string
	for _, e := range entries {
		releases = append(releases, e.Name())
	}
	return Of(releases)
}

// missing are the releases of which one is to be fetched, for each side that lacks one.
func missing(p Pair) [][]string {
	var out [][]string
	if p.Older == "" {
		out = append(out, olders())
	}
	if p.Newer == "" {
		out = append(out, newers())
	}
	return out
}

// fetch downloads, of each list, the packages of the first release that the archive has.
func fetch(ctx context.Context, c cache.Dir, dir string, lists [][]string) error {
	tmp := c.Path("kernels.tmp")
	defer os.RemoveAll(tmp)
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o755)); err != nil {
		return fmt.Errorf("cannot fetch kernels: %w", err)
	}
	script := `first() {
	for k; do
		packages="linux-image-$k linux-headers-$k linux-headers-${k%-*}-common"
		for p in $packages; do apt-cache show "$p" >/dev/null 2>&1 || continue 2; done
		mkdir "$to/$k"
		cd "$to/$k"
		apt-get -q download $packages
		return
	done
}
to=` + quoted(tmp) + "\n"
	for _, list := range lists {
		script += "first " + strings.Join(list, " ") + "\n"
	}
	if err := apt(ctx, "bookworm", tmp, script); err != nil {
		return err
	}
	return take(ctx, tmp, dir)
}

// Later downloads the package of the newest kernel of the next Debian into a folder and returns its file.
func Later(ctx context.Context, dir string) (string, error) {
	script := "cd " + quoted(dir) + `
p=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
test -n "$p"
apt-get -q download "$p"
`
	if err := apt(ctx, "trixie", dir, script); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "linux-image-*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("cannot fetch a later kernel: %q, %v", files, err)
	}
	return files[0], nil
}

// apt runs a script that uses apt, with the archive's own keys: mmdebstrap prepares it for a suite, its updates and its
// security updates. The folder is for what mmdebstrap needs meanwhile.
func apt(ctx context.Context, suite, dir, script string) error {
	root := filepath.Join(dir, "root")
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "mmdebstrap", "--variant=extract",
		"--include=base-files", `--extract-hook=set -eu; export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"`+"\n"+script,
		suite, root)
	if out, err := cmd.CombinedOutput(); err != nil {
		const most = 4000
		return fmt.Errorf("cannot fetch kernels: %w\n%s", err, out[max(0, len(out)-most):])
	}
	if err := os.RemoveAll(root); err != nil {
		return fmt.Errorf("cannot fetch kernels: %w", err)
	}
	return nil
}

// take moves what was fetched to what is kept, and writes the index of all that.
func take(ctx context.Context, from, dir string) error {
	fetched, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("cannot keep kernels: %w", err)
	}
	for _, e := range fetched {
		if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("cannot keep kernels: %w", err)
		}
	}
	index := ""
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".deb" {
			return err
		}
		fields, err := exec.CommandContext(ctx, "dpkg-deb", "--field", path).Output()
		if err != nil {
			return fmt.Errorf("cannot read package %q: %w", path, err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		index += fmt.Sprintf("%s\nFilename: ./%s\nSize: %d\nSHA256: %x\n\n", strings.TrimSpace(string(fields)),
			strings.TrimPrefix(path, dir+"/"), len(content), sha256.Sum256(content))
		return nil
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "Packages"), []byte(index), 0o644)
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
