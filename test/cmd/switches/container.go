package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// container runs the program in a container of runc that has CDI devices, and returns what it wrote.
func (s *stage) container(ctx context.Context, name string, ids []string, vfio bool) (string, error) {
	bundle, err := os.MkdirTemp("", "bundle-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(bundle) }() // below the temporary directory
	root := filepath.Join(bundle, "rootfs")
	if err := os.Mkdir(root, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(root, "program"), nil, 0o755); err != nil {
		return "", err
	}
	args := []string{"/program", "-expect", "1"}
	if vfio {
		args = append(args, "-vfio")
	}
	spec := &specs.Spec{
		Version: specs.Version, Root: &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/"}},
		Mounts: []specs.Mount{
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/sys", Type: "bind", Source: "/sys", Options: []string{"rbind", "ro"}},
			{Destination: "/program", Type: "bind", Source: s.program, Options: []string{"bind", "ro"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
			},
			Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
		},
	}
	if err := s.inject(spec, ids); err != nil {
		return "", err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "runc", "run", "--bundle", bundle, name).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("the container: %w: %s", err, out)
	}
	return string(out), nil
}

// inject adds what the CDI specs say about devices. They were written a moment ago. What is wrong with a spec of
// somebody else does not matter.
func (s *stage) inject(spec *specs.Spec, ids []string) error {
	s.specs.Lock()
	defer s.specs.Unlock()
	_ = s.cache.Refresh() // it names what is wrong with any spec
	_, err := s.cache.InjectDevices(spec, ids...)
	return err
}
