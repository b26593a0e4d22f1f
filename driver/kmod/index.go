package kmod

import (
	"bufio"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/signing"
	"github.com/acceld/acceld/host"
)

// Index is what depmod wrote about the modules of one kernel. It is read on first use: most drivers of the store do
// not need it.
type Index struct {
	h       *host.Host
	dir     string // /lib/modules/<release>
	release string

	read    sync.Once
	chains  map[string][]string // by module: the files to load for it, in order, its own last
	sample  string              // a file that came with the kernel; empty if there is none
	builtin map[string]bool

	unpacked sync.Once
	own      string             // see Flags
	signed   *signing.Signature // see signer
}

// NewIndex returns the index of a kernel's modules.
func NewIndex(h *host.Host, release string) *Index {
	return &Index{h: h, dir: path.Join("/lib/modules", release), release: release}
}

// fill reads modules.dep and modules.builtin. Without them the index is empty.
func (x *Index) fill() {
	x.chains, x.builtin = map[string][]string{}, map[string]bool{}
	x.eachLine("modules.dep", func(line string) {
		file, rest, ok := strings.Cut(line, ":")
		name, isModule := NameOf(file)
		if !ok || !isModule {
			return
		}
		file = x.absolute(file)
		if other, has := x.chains[name]; has && x.rank(other[len(other)-1]) <= x.rank(file) {
			return
		}
		chain := []string{file}
		for _, p := range strings.Fields(rest) {
			chain = append(chain, x.absolute(p))
		}
		slices.Reverse(chain) // depmod writes the module to load first last
		x.chains[name] = chain
		if x.sample == "" && x.ownFile(file) {
			x.sample = file
		}
	})
	x.eachLine("modules.builtin", func(line string) {
		if name, ok := NameOf(line); ok {
			x.builtin[name] = true
		}
	})
}

// inKernel reports whether the module is built into the kernel.
func (x *Index) inKernel(name string) bool {
	x.read.Do(x.fill)
	return x.builtin[Normal(name)]
}

// rank is the position in depmod's default search order (depmod.d(5)): modules that an administrator added come
// before the kernel's own.
func (x *Index) rank(file string) int {
	for i, dir := range []string{"updates", "extra", "weak-updates"} {
		if strings.HasPrefix(file, path.Join(x.dir, dir)+"/") {
			return i
		}
	}
	return 3
}

// file returns the path of the module on the host.
func (x *Index) file(name string) (string, bool) {
	chain := x.chain(name)
	if chain == nil {
		return "", false
	}
	return chain[len(chain)-1], true
}

// FileOf returns the file of a definition's module, under its name or one of its alternative file names.
func (x *Index) FileOf(m accel.Module) (string, bool) {
	for _, name := range append([]string{m.Name}, m.Files...) {
		if file, ok := x.file(name); ok {
			return file, true
		}
	}
	return "", false
}

// absolute makes a path of modules.dep absolute: some versions of depmod already write absolute paths.
func (x *Index) absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join(x.dir, p)
}

// chain returns the files that must be loaded for the module name, its own last; nil if it is not installed.
func (x *Index) chain(name string) []string {
	x.read.Do(x.fill)
	return x.chains[Normal(name)]
}

func (x *Index) eachLine(file string, do func(string)) {
	f, err := x.h.Open(path.Join(x.dir, file))
	if err != nil {
		return // a kernel without modules has no such files
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20) // a line of modules.dep grows with the number of dependencies
	for s.Scan() {
		do(s.Text())
	}
}

// Flags returns the vermagic flags of one of the kernel's own modules, "" if none is installed.
func (x *Index) Flags() string {
	x.read.Do(x.fill)
	x.unpacked.Do(func() {
		if x.sample == "" {
			return
		}
		m, problem := Open(x.h, x.sample)
		if problem != nil {
			return
		}
		defer m.Close()
		if r, flags, _ := strings.Cut(m.Vermagic, " "); r == x.release {
			x.own, x.signed = strings.Join(strings.Fields(flags), " "), m.Signature
		}
	})
	return x.own
}

// signer returns the signature of one of the kernel's own modules, nil if unknown.
func (x *Index) signer() *signing.Signature {
	x.Flags()
	return x.signed
}

// ownFile reports whether a module file came with the kernel.
func (x *Index) ownFile(file string) bool {
	return strings.HasPrefix(file, path.Join(x.dir, "kernel")+"/")
}
