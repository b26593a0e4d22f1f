// Package prometheus has Debian's Prometheus, for tests of what acceld tells it, and the definitions of the Prometheus
// operator's kinds. It fetches the package without installing it, so that no service is started on the machine of the
// tests, and keeps the programs in the test bed's cache.
package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/parts"
)

// Programs returns the folder that holds Debian's prometheus and promtool.
func Programs(ctx context.Context) (dir string, err error) {
	c, err := cache.Open(nil)
	if err != nil {
		return "", err
	}
	version, err := candidate(ctx)
	if err != nil {
		return "", err
	}
	entry, err := c.Entry(ctx, "prometheus", cache.NewKey("1", version), func(tmp string) error {
		return fetch(ctx, tmp)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(entry, "usr/bin"), nil
}

// Operator returns the folder of the Prometheus operator's module, in the version that the test bed builds: its own
// manifests are in it.
func Operator(ctx context.Context) (dir string, err error) {
	root, err := parts.ModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	const module = "github.com/prometheus-operator/prometheus-operator"
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(root, "test/vm/parts/prometheusoperator")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot fetch module %q: %w\n%s", module, err, out)
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", fmt.Errorf("cannot find module %q: %w", module, err)
	}
	return got.Dir, nil
}

// Definitions returns the Prometheus operator's own definition of some of its kinds, named as in its interface:
// "servicemonitors".
func Definitions(ctx context.Context, kinds ...string) ([][]byte, error) {
	dir, err := Operator(ctx)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, kind := range kinds {
		text, err := os.ReadFile(filepath.Join(dir, "example/prometheus-operator-crd",
			"monitoring.coreos.com_"+kind+".yaml"))
		if err != nil {
			return nil, fmt.Errorf("cannot read a definition: %w", err)
		}
		all = append(all, text)
	}
	return all, nil
}

// candidate is the version of the package that there is.
func candidate(ctx context.Context) (string, error) {
	for again := false; ; again = true {
		out, err := exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", "prometheus").CombinedOutput()
		if err == nil {
			for line := range strings.Lines(string(out)) {
				if version, ok := strings.CutPrefix(line, "Version: "); ok {
					return strings.TrimSpace(version), nil
				}
			}
		}
		if again {
			return "", fmt.Errorf("cannot find the package prometheus: %v\n%s", err, out)
		}
		if out, err := exec.CommandContext(ctx, "apt-get", "update", "-q").CombinedOutput(); err != nil {
			return "", fmt.Errorf("cannot update the lists of packages: %w\n%s", err, out)
		}
	}
}

// fetch downloads the package and unpacks its programs into dir.
func fetch(ctx context.Context, dir string) error {
	download := exec.CommandContext(ctx, "apt-get", "download", "-q", "prometheus")
	download.Dir = dir
	if out, err := download.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot download the package prometheus: %w\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("cannot find the package prometheus in %q: %v", files, err)
	}
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", files[0], dir).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot unpack %q: %w\n%s", files[0], err, out)
	}
	return os.Remove(files[0])
}
