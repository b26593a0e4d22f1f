// Package parts builds the real programs that the test bed runs (Kubernetes, etcd, CRI-O, runc and others) from nested
// modules, so that none of them reaches acceld's own go.mod. It fetches nothing but Go modules and changes nothing
// outside the cache folder.
package parts

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/progress"
)

// recipe is raised when a build changes in a way that no hashed file shows.
const recipe = "3"

// The parts that a caller asks for by name.
const (
	Kubernetes         = "kubernetes"
	Kubectl            = "kubectl"
	Etcd               = "etcd"
	Runc               = "runc"
	CRIO               = "crio"
	Containerd         = "containerd"
	NodeExporter       = "nodeexporter"
	Kwok               = "kwok"
	PrometheusOperator = "prometheusoperator"
)

// Cluster are the parts of a control plane and its kubelets, and the administrator's program.
func Cluster() []string { return []string{Etcd, Kubernetes, Kubectl} }

// part is one nested module and what is built from it.
type part struct {
	name     string
	module   string // the folder with its go.mod; the name unless set
	packages []string
	tags     string
	cgo      bool
	ldflags  string
	// plain are patterns of packages that are compiled without inlining.
	plain []string
	// without are Go files, by their module, of which no more than the package clause is compiled: helpers of tests
	// that are not in files of tests.
	without map[string]string
	c       []program
}

// program is a small C program that lives in a Go module.
type program struct {
	name, module, sources string
	flags                 []string
}

// kubernetesVersion goes into the binaries, which would otherwise call themselves v0.0.0 and fail version checks.
const kubernetesVersion = "v1.37.1"

func all() []part {
	return []part{
		{
			name: Kubernetes,
			packages: []string{
				"k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-controller-manager",
				"k8s.io/kubernetes/cmd/kube-scheduler", "k8s.io/kubernetes/cmd/kubelet",
			},
			ldflags: kubernetesFlags(),
			plain:   plain(),
			// The fake client set and what it is made of: 60 packages.
			without: map[string]string{
				"k8s.io/kubernetes": "pkg/scheduler/backend/queue/testing.go",
				"k8s.io/apiserver":  "pkg/admission/plugin/policy/generic/policy_test_context.go",
			},
			c: []program{{
				name: "pause", module: "k8s.io/kubernetes", sources: "build/pause/linux/pause.c",
				flags: []string{"-Os", "-static", "-s", "-DVERSION=1"},
			}},
		},
		{
			name: Kubectl, module: Kubernetes, packages: []string{"k8s.io/kubernetes/cmd/kubectl"}, ldflags: kubernetesFlags(),
			plain: plain(),
		},
		{name: Etcd, packages: []string{"go.etcd.io/etcd/server/v3"}, plain: plain()},
		{name: Runc, packages: []string{"github.com/opencontainers/runc"}, tags: "seccomp", cgo: true},
		{
			name: CRIO, packages: []string{"github.com/cri-o/cri-o/cmd/crio"}, cgo: true,
			tags: "containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper seccomp",
			c: []program{{
				name: "pinns", module: "github.com/cri-o/cri-o", sources: "pinns/src/*.c",
				flags: []string{"-std=c99", "-Os", "-static", "-s"},
			}},
		},
		{
			name: Containerd, tags: "no_btrfs no_devmapper no_zfs no_tracing", plain: plain(), packages: []string{
				"github.com/containerd/containerd/v2/cmd/containerd",
				"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
				"github.com/containerd/containerd/v2/cmd/ctr",
			},
		},
		{name: NodeExporter, packages: []string{"github.com/prometheus/node_exporter"}},
		{name: Kwok, packages: []string{"sigs.k8s.io/kwok/cmd/kwok"}},
		// Debian's Prometheus finds nothing by Kubernetes: it is built without.
		{name: PrometheusOperator, tags: "remove_all_sd enable_kubernetes_sd", packages: []string{
			"github.com/prometheus-operator/prometheus-operator/cmd/operator",
			"github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader",
			"github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool",
		}},
	}
}

// plain are the packages, of several parts, of which a quick compilation is worth more than quick code: without
// inlining the compiler has a fifth less to do. What acceld has, too, is not among them: it would be compiled twice.
func plain() []string {
	return []string{
		"k8s.io/...", "sigs.k8s.io/...", "go.etcd.io/...", "github.com/containerd/...", "github.com/google/cel-go/...",
		"github.com/antlr4-go/...",
	}
}

func kubernetesFlags() string {
	var b strings.Builder
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		fmt.Fprintf(&b,
			" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=37 -X %[1]s.gitTreeState=clean",
			p, kubernetesVersion)
	}
	return b.String()
}

// Set is the built programs, by name.
type Set struct {
	paths map[string]string
	dirs  []string
}

// Path is the file of a program, such as "kubelet", or empty for one that was not asked for.
func (s Set) Path(program string) string { return s.paths[program] }

// Dirs are the folders that hold the programs, one for each part; their names change with their content.
func (s Set) Dirs() []string { return s.dirs }

// With is the programs of both sets.
func (s Set) With(o Set) Set {
	out := Set{paths: maps.Clone(s.paths), dirs: slices.Concat(s.dirs, o.dirs)}
	if out.paths == nil {
		out.paths = map[string]string{}
	}
	maps.Copy(out.paths, o.paths)
	return out
}

// Builder builds parts.
type Builder struct {
	// Idle runs the compilers at the lowest priority.
	Idle bool
}

// Build builds parts at the usual priority; see [Builder.Build].
func Build(ctx context.Context, c cache.Dir, log *progress.Log, names ...string) (Set, error) {
	return Builder{}.Build(ctx, c, log, names...)
}

// Build builds what the cache lacks of the named parts, one after the other in the order of the names, for each takes
// all processors, and returns their programs.
func (b Builder) Build(ctx context.Context, c cache.Dir, log *progress.Log, names ...string) (Set, error) {
	root, err := ModuleRoot(ctx)
	if err != nil {
		return Set{}, err
	}
	set := Set{paths: map[string]string{}}
	for _, name := range names {
		p, err := find(name)
		if err != nil {
			return Set{}, err
		}
		dir, err := p.build(ctx, p.dir(root), c, log, b)
		if err != nil {
			return Set{}, err
		}
		programs, err := os.ReadDir(dir)
		if err != nil {
			return Set{}, fmt.Errorf("cannot list part %q: %w", p.name, err)
		}
		for _, program := range programs {
			set.paths[program.Name()] = filepath.Join(dir, program.Name())
		}
		set.dirs = append(set.dirs, dir)
	}
	return set, nil
}

// Fetch fetches the modules of the named parts, for who has something else to do before they are built.
func Fetch(ctx context.Context, c cache.Dir, log *progress.Log, names ...string) error {
	root, err := ModuleRoot(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		p, err := find(name)
		if err != nil {
			return err
		}
		module := p.dir(root)
		key := p.key(module)
		if err := key.Err(); err != nil {
			return err
		}
		if c.Has("part-"+p.name, key) {
			continue
		}
		err = log.Count("fetching "+p.name, func(step *progress.Step) error {
			return goCommand{dir: module, cgo: p.cgo}.fetch(ctx, step, p.flags(), p.packages)
		})
		if err != nil {
			return fmt.Errorf("cannot fetch the modules of part %q: %w", p.name, err)
		}
	}
	return nil
}

func find(name string) (part, error) {
	i := slices.IndexFunc(all(), func(p part) bool { return p.name == name })
	if i < 0 {
		return part{}, fmt.Errorf("cannot build part %q: there is none of that name", name)
	}
	return all()[i], nil
}

// ModuleRoot is the folder of acceld's go.mod.
func ModuleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/acceld/acceld").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find acceld's source folder (run inside the checkout): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// dir is the folder of the part's module in acceld's.
func (p part) dir(root string) string {
	return filepath.Join(root, "test", "vm", "parts", cmp.Or(p.module, p.name))
}

// key is of everything that the part's programs are made from.
func (p part) key(module string) *cache.Key {
	return cache.NewKey(recipe, runtime.Version(), p.tags, p.ldflags,
		fmt.Sprint(p.cgo, p.packages, p.plain, p.without, p.c)).
		AddFile(filepath.Join(module, "go.mod")).
		AddFile(filepath.Join(module, "go.sum"))
}

func (p part) build(ctx context.Context, module string, c cache.Dir, log *progress.Log, b Builder) (string, error) {
	key := p.key(module)
	if err := key.Err(); err != nil {
		return "", err
	}
	return c.Entry(ctx, "part-"+p.name, key, func(tmp string) error {
		return log.Count("building "+p.name, func(step *progress.Step) error {
			if err := p.buildGo(ctx, goCommand{dir: module, cgo: p.cgo, idle: b.Idle}, tmp, step); err != nil {
				return err
			}
			for _, program := range p.c {
				if err := program.build(ctx, module, tmp); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// buildGo fetches the modules and compiles the programs.
func (p part) buildGo(ctx context.Context, g goCommand, out string, step *progress.Step) error {
	if err := g.fetch(ctx, step, p.flags(), p.packages); err != nil {
		return fmt.Errorf("cannot fetch the modules of part %q: %w", p.name, err)
	}
	flags, done, err := g.leaveOut(ctx, p.without)
	if err != nil {
		return fmt.Errorf("cannot leave files out of part %q: %w", p.name, err)
	}
	defer done()
	flags = append(flags, p.flags()...)
	count, err := g.stale(ctx, flags, p.packages)
	if err != nil {
		return fmt.Errorf("cannot list the packages of part %q: %w", p.name, err)
	}
	step.Of("packages", count)
	args := append([]string{"build", "-v", "-o", out + string(filepath.Separator), "-ldflags", "-s -w" + p.ldflags},
		flags...)
	if err := g.run(ctx, nil, func(string) { step.Add(1) }, append(args, p.packages...)...); err != nil {
		return fmt.Errorf("cannot build part %q: %w", p.name, err)
	}
	// The etcd server's package path ends in a version, which go build leaves out of the name, but not in its parent's.
	if p.name == Etcd {
		if err := os.Rename(filepath.Join(out, "server"), filepath.Join(out, "etcd")); err != nil {
			return fmt.Errorf("cannot name the etcd binary: %w", err)
		}
	}
	return nil
}

// flags make no debug information: that is a tenth of the compiler's work. The flags of GOFLAGS are the Makefile's, and
// so the compiler does a package once that acceld and a part have in common. A part with C in it takes the resolvers
// written in Go, with which the standard library is compiled as it is without C.
func (p part) flags() []string {
	tags := p.tags
	if p.cgo {
		tags += " netgo osusergo"
	}
	out := []string{"-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"}
	for _, pattern := range p.plain {
		out = append(out, "-gcflags="+pattern+"=-dwarf=false -l")
	}
	return append(out, "-tags", strings.TrimSpace(tags))
}

func (c program) build(ctx context.Context, module, out string) error {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", c.module)
	list.Dir = module
	list.Env = append(os.Environ(), "GOWORK=off")
	dir, err := list.Output()
	if err != nil {
		return fmt.Errorf("cannot find module %q: %w", c.module, err)
	}
	sources, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), c.sources))
	if err != nil || len(sources) == 0 {
		return fmt.Errorf("cannot find the sources of %q: %v", c.name, err)
	}
	args := append([]string{"-o", filepath.Join(out, c.name)}, c.flags...)
	if output, err := exec.CommandContext(ctx, "gcc", append(args, sources...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot compile %q: %w\n%s", c.name, err, output)
	}
	return nil
}
