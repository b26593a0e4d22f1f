package detect

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// modulesRoots are where distributions put the modules of kernels; the first is a link to the second on most.
func modulesRoots() []string { return []string{"/lib/modules", "/usr/lib/modules"} }

// kernelFiles returns where distributions put the image of a kernel.
func kernelFiles(release string) []string {
	return []string{
		"/boot/vmlinuz-" + release,             // Debian, Ubuntu, RHEL, SUSE
		"/lib/modules/" + release + "/vmlinuz", // Fedora, SUSE, image-based distributions
		"/usr/lib/modules/" + release + "/vmlinuz",
		"/boot/Image-" + release, "/lib/modules/" + release + "/Image", // SUSE on arm64
		"/boot/vmlinux-" + release, "/boot/kernel-" + release,
	}
}

// InstalledKernels returns the sorted releases of the installed kernels: those that have modules.
func InstalledKernels(h *host.Host) []string {
	var out []string
	for _, root := range modulesRoots() {
		for _, dir := range h.Glob(root, "*") {
			release := path.Base(dir)
			if !slices.Contains(out, release) && (h.Exists(dir+"/modules.order") || h.Exists(dir+"/modules.dep") ||
				h.Exists(dir+"/kernel")) {
				out = append(out, release)
			}
		}
	}
	slices.Sort(out)
	return out
}

// InstalledKernel describes an installed kernel as it would describe itself when running, and what could not be
// determined. Running is the running kernel, empty for a copy of a machine. Policy is assumed to be the same after a
// reboot, unless the other kernel's configuration is stricter.
func InstalledKernel(h *host.Host, release string, running accel.Kernel) (accel.Kernel, []string) {
	if release == running.Release {
		return running, nil
	}
	k := accel.Kernel{
		Release: release, Arch: running.Arch, Lockdown: running.Lockdown, SecureBoot: running.SecureBoot,
		LockdownUnknown: running.LockdownUnknown, SecureBootUnknown: running.SecureBootUnknown,
		SigEnforce: running.SigEnforce, NotRunning: true,
	}
	var problems []string
	file, image, err := readKernelFile(h, release)
	if err != nil {
		problems = append(problems, fmt.Sprintf("cannot tell the build id of kernel %q: %v", release, err))
	}
	if image.release != "" && image.release != release {
		problems = append(problems, fmt.Sprintf("%s is kernel %q, not %q", file, image.release, release))
		image = kernelImage{}
	}
	k.Version, k.BuildID = image.version, image.buildID
	if k.Arch == "" {
		k.Arch = image.arch
	}
	k.Headers = headers(h, release)
	for _, name := range []string{
		"/boot/config-" + release, "/lib/modules/" + release + "/config",
		path.Join(k.Headers, ".config"),
	} {
		if config, err := h.ReadFile(name); err == nil {
			k.SigEnforce = k.SigEnforce || strings.Contains(string(config), "\nCONFIG_MODULE_SIG_FORCE=y\n")
			break
		}
	}
	return k, problems
}

// readKernelFile reads the first existing image of a kernel.
func readKernelFile(h *host.Host, release string) (string, kernelImage, error) {
	if release == "" || strings.Contains(release, "/") {
		return "", kernelImage{}, fmt.Errorf("%q is no release of a kernel", release)
	}
	for _, name := range kernelFiles(release) {
		f, err := h.Open(name)
		if err != nil {
			continue
		}
		var image kernelImage
		st, err := f.Stat()
		if err == nil {
			image, err = readKernelImage(f, st.Size())
		}
		_ = f.Close() // read only
		if err != nil {
			err = fmt.Errorf("cannot read %s: %w", name, err)
		}
		return name, image, err
	}
	return "", kernelImage{}, fmt.Errorf("no file of it is there, such as %s", kernelFiles(release)[0])
}
