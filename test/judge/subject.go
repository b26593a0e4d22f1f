package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// Subject is what is tried. Paths are relative to the file's directory.
type Subject struct {
	Name string `json:"name"`
	// Version is shown in the table; unless set, it is the commit of the first build's directory.
	Version string `json:"version,omitempty"`
	// Resource is the extended resource that pods ask for. DeviceClass is the class of devices that they claim, and
	// Driver the name in ResourceSlices. A subject has a resource, or a class and a driver.
	Resource    string `json:"resource,omitempty"`
	DeviceClass string `json:"deviceClass,omitempty"`
	Driver      string `json:"driver,omitempty"`
	// Builds are programs that are compiled and put into the guest.
	Builds []Build `json:"builds,omitempty"`
	// Files are copied into the guest: files, or whole directories.
	Files []File `json:"files,omitempty"`
	// Texts are files of the guest, by path.
	Texts map[string]string `json:"texts,omitempty"`
	// Kubeconfig is where an administrator's kubeconfig is put in the guest; empty for subjects that need none.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Setup is a script that runs once in the guest, as root, such as one that installs a driver.
	Setup string `json:"setup,omitempty"`
	// Unit is the name of the systemd unit that the subject ships and that Files or Setup install. Without one, Run is
	// its command, which runs as a unit that is started again when it ends, also after a reboot.
	Unit string   `json:"unit,omitempty"`
	Run  []string `json:"run,omitempty"`
	// Manifests are files for the API server, such as a DeviceClass.
	Manifests []string `json:"manifests,omitempty"`
	// Pod is what a pod does with a device.
	Pod Pod `json:"pod"`
	// NotFor are scenarios that make no sense for the subject, with the reason.
	NotFor map[string]string `json:"notFor,omitempty"`

	dir string
}

// Build is a program that is compiled with Go, without the C library.
type Build struct {
	// Dir is the directory of a Go module; empty for the working directory. In ${NAME} it names a variable of the
	// environment, for clones that are everywhere else.
	Dir string `json:"dir,omitempty"`
	// Package is a main package of the module.
	Package string `json:"package"`
	// To is the path in the guest.
	To string `json:"to"`
}

// dir returns the directory of the build with its variables filled in.
func (b Build) dir() (string, error) {
	var missing string
	dir := os.Expand(b.Dir, func(name string) string {
		value, ok := os.LookupEnv(name)
		if !ok {
			missing = name
		}
		return value
	})
	if missing != "" {
		return "", fmt.Errorf("the environment has no %s: set it to the directory", missing)
	}
	return cmp.Or(dir, "."), nil
}

// version is what the table shows.
func (s *Subject) version(ctx context.Context) string {
	if s.Version != "" || len(s.Builds) == 0 {
		return s.Version
	}
	dir, err := s.Builds[0].dir()
	if err != nil {
		return ""
	}
	return revision(ctx, dir)
}

// revision is the commit of a directory; empty if it is in no repository.
func revision(ctx context.Context, dir string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", dir, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// File is copied into the guest.
type File struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Pod is a container that uses devices.
type Pod struct {
	// Program is the package of a static program that the container has besides busybox; empty for busybox alone.
	Program string `json:"program,omitempty"`
	// Check is a script that fails when it has no working device.
	Check string `json:"check"`
}

// serviceName matches the names of units that are services (systemd.unit(5)).
var serviceName = regexp.MustCompile(`^[A-Za-z0-9:_.@-]+\.service$`)

// Problems of a subject, with the name of its file.
func (s *Subject) problem() error {
	byResource, byClass := s.Resource != "", s.DeviceClass != "" || s.Driver != ""
	switch {
	case s.Name == "":
		return errors.New("name: is missing")
	case byResource == byClass:
		return errors.New("want either resource, or deviceClass and driver")
	case byClass && (s.DeviceClass == "" || s.Driver == ""):
		return errors.New("deviceClass and driver belong together")
	case (s.Unit == "") == (len(s.Run) == 0):
		return errors.New("want either unit or run")
	case s.Unit != "" && !serviceName.MatchString(s.Unit):
		return fmt.Errorf("unit: %q is not the name of a service", s.Unit)
	case s.Pod.Check == "":
		return errors.New("pod.check: is missing: a script that fails without a working device")
	}
	for i, b := range s.Builds {
		if b.Package == "" || b.To == "" {
			return fmt.Errorf("builds[%d]: want package and to", i)
		}
		if _, err := b.dir(); err != nil {
			return fmt.Errorf("builds[%d].dir: %w", i, err)
		}
	}
	for i, f := range s.Files {
		if f.From == "" || f.To == "" {
			return fmt.Errorf("files[%d]: want from and to", i)
		}
	}
	return nil
}

func readSubject(file string) (*Subject, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the subject: %w", err)
	}
	s := &Subject{dir: filepath.Dir(file)}
	if err := yaml.UnmarshalStrict(text, s); err != nil {
		return nil, fmt.Errorf("cannot use %q: %w", file, err)
	}
	if err := s.problem(); err != nil {
		return nil, fmt.Errorf("cannot use %q: %w", file, err)
	}
	return s, nil
}
