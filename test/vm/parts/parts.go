// Package parts builds the real programs that the test bed runs (Kubernetes, etcd, CRI-O, runc and others) from nested
// modules, so that none of them reaches acceld's own go.mod. It fetches nothing but Go modules and changes nothing
// outside the cache folder.
package parts

import (
	"context"
	"fmt"
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
const recipe = "1"

// part is one nested module and what is built from it.
type part struct {
	name     string
	packages []string
	tags     string
	cgo      bool
	ldflags  string
	c        []program
	// asked is true for a part that is built for who asks for it.
	asked bool
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
			name: "kubernetes",
			packages: []string{
				"k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-controller-manager",
				"k8s.io/kubernetes/cmd/kube-scheduler", "k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kubectl",
			},
			ldflags: kubernetesFlags(),
			c: []program{{
				name: "pause", module: "k8s.io/kubernetes", sources: "build/pause/linux/pause.c",
				flags: []string{"-Os", "-static", "-s", "-DVERSION=1"},
			}},
		},
		{name: "etcd", packages: []string{"go.etcd.io/etcd/server/v3"}},
		{name: "runc", packages: []string{"github.com/opencontainers/runc"}, tags: "seccomp", cgo: true},
		{
			name: "crio", packages: []string{"github.com/cri-o/cri-o/cmd/crio"}, cgo: true,
			tags: "containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper seccomp",
			c: []program{{
				name: "pinns", module: "github.com/cri-o/cri-o", sources: "pinns/src/*.c",
				flags: []string{"-std=c99", "-Os", "-static", "-s"},
			}},
		},
		{
			name: "containerd", tags: "no_btrfs", packages: []string{
				"github.com/containerd/containerd/v2/cmd/containerd",
				"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/ctr",
			},
		},
		{name: "nodeexporter", packages: []string{"github.com/prometheus/node_exporter"}},
		{name: "kwok", packages: []string{"sigs.k8s.io/kwok/cmd/kwok"}, asked: true},
		// Debian's Prometheus finds nothing by Kubernetes: it is built without.
		{name: "prometheusoperator", tags: "remove_all_sd enable_kubernetes_sd", asked: true, packages: []string{
			"github.com/prometheus-operator/prometheus-operator/cmd/operator",
			"github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader",
			"github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool",
		}},
	}
}

func kubernetesFlags() string {
	var b strings.Builder
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		fmt.Fprintf(&b, " -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=37 -X %[1]s.gitTreeState=clean",
			p, kubernetesVersion)
	}
	return b.String()
}

// Set is the built programs, by name.
type Set struct {
	paths map[string]string
	dirs  []string
}

// Path is the file of a program, such as "kubelet".
func (s Set) Path(program string) string { return s.paths[program] }

// Dirs are the folders that hold the programs, one for each part; their names change with their content.
func (s Set) Dirs() []string { return s.dirs }

// Build builds what the cache lacks and returns every program, of the parts that few need those that are named.
func Build(ctx context.Context, c cache.Dir, log *progress.Log, more ...string) (Set, error) {
	root, err := ModuleRoot(ctx)
	if err != nil {
		return Set{}, err
	}
	set := Set{paths: map[string]string{}}
	for _, p := range all() {
		if p.asked && !slices.Contains(more, p.name) {
			continue
		}
		dir, err := p.build(ctx, filepath.Join(root, "test", "vm", "parts", p.name), c, log)
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

// ModuleRoot is the folder of acceld's go.mod.
func ModuleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/acceld/acceld").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find acceld's source folder (run inside the checkout): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (p part) build(ctx context.Context, module string, c cache.Dir, log *progress.Log) (string, error) {
	key := cache.NewKey(recipe, runtime.Version(), p.tags, p.ldflags, fmt.Sprint(p.cgo, p.packages, p.c)).
		AddFile(filepath.Join(module, "go.mod")).
		AddFile(filepath.Join(module, "go.sum"))
	if err := key.Err(); err != nil {
		return "", err
	}
	return c.Entry(ctx, "part-"+p.name, key, func(tmp string) error {
		return log.Do("building "+p.name, func() error {
			if err := p.buildGo(ctx, module, tmp); err != nil {
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

// buildGo is niced: a test machine has other things to do.
func (p part) buildGo(ctx context.Context, module, out string) error {
	args := []string{"go", "build", "-trimpath", "-ldflags", "-s -w" + p.ldflags, "-o", out + string(filepath.Separator)}
	if p.tags != "" {
		args = append(args, "-tags", p.tags)
	}
	cmd := exec.CommandContext(ctx, "nice", append(args, p.packages...)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if p.cgo {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build part %q: %w\n%s", p.name, err, output)
	}
	// The etcd server's package path ends in a version, which go build leaves out of the name, but not in its parent's.
	if p.name == "etcd" {
		if err := os.Rename(filepath.Join(out, "server"), filepath.Join(out, "etcd")); err != nil {
			return fmt.Errorf("cannot name the etcd binary: %w", err)
		}
	}
	return nil
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
