package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/test/vm/bed"
)

// Package makes the Debian package of this tree under a version, as git describe would say it, and returns its file.
func (s *Stage) Package(ctx context.Context, version string) (string, error) {
	out := filepath.Join(filepath.Dir(s.bin), "package-"+version)
	cmd := exec.CommandContext(ctx, "go", "run", ".", "-bin", s.bin, "-out", out, "-version", version)
	cmd.Dir = s.File("packaging/packages")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot make the package: %w\n%s", err, text)
	}
	files, err := filepath.Glob(filepath.Join(out, "*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("cannot find the package: %q, %v", files, err)
	}
	return files[0], nil
}

// ControllerImage builds the controller, pushes its image and returns the name that a pod gives for it.
func (s *Stage) ControllerImage(ctx context.Context, n *bed.Node) (string, error) {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", s.bin+"/",
		"./cmd/acceld-controller")
	build.Dir, build.Env = s.root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the controller: %w\n%s", err, text)
	}
	cmd := exec.CommandContext(ctx, "go", "run", ".", "-bin", s.bin, "-compression", "1", "-controller", "-push",
		n.Registry()+"/acceld-controller:"+s.tag, "-insecure")
	cmd.Dir = s.File("packaging/image")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot make the controller's image: %w\n%s", err, text)
	}
	return n.Image("acceld-controller:" + s.tag), nil
}

// Helm runs Helm against a node's cluster.
func (s *Stage) Helm(ctx context.Context, n *bed.Node, args ...string) (string, error) {
	program, err := s.HelmProgram(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, append(args, "--kubeconfig", n.Kubeconfig())...)
	cmd.Env = append(os.Environ(), s.HelmHome()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// HelmProgram is Helm, of the version that test/chart pins. It is built when it is first asked for.
func (s *Stage) HelmProgram(ctx context.Context) (string, error) {
	program := filepath.Join(s.bin, "helm")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program,
		"helm.sh/helm/v3/cmd/helm")
	build.Dir, build.Env = s.File("test/chart"), append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build Helm: %w\n%s", err, text)
	}
	return program, nil
}

// HelmHome is the environment that keeps what Helm remembers out of the user's home.
func (s *Stage) HelmHome() []string {
	home := filepath.Join(filepath.Dir(s.bin), "helm")
	return []string{"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
}
