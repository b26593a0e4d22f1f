package detect

// Every path that this package reads, as the machine sees it. Sources: Documentation/ABI/{stable,testing}/sysfs-*,
// proc(5), os-release(5), and the kubelet's reference.
const (
	pciDevices = "/sys/bus/pci/devices"
	modulesDir = "/sys/module"

	procOSRelease       = "/proc/sys/kernel/osrelease"
	procVersion         = "/proc/sys/kernel/version"
	procArch            = "/proc/sys/kernel/arch" // Linux 6.1
	procBootID          = "/proc/sys/kernel/random/boot_id"
	procTainted         = "/proc/sys/kernel/tainted"
	procModulesDisabled = "/proc/sys/kernel/modules_disabled"
	kernelNotes         = "/sys/kernel/notes"
	kernelLockdown      = "/sys/kernel/security/lockdown"
	kernelLSM           = "/sys/kernel/security/lsm"
	sigEnforce          = "/sys/module/module/parameters/sig_enforce"
	sysFirmware         = "/sys/firmware"
	efiFirmware         = "/sys/firmware/efi"
	secureBootVariable  = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

	procDir = "/proc"

	// The kubelet creates this directory whatever its --root-dir is (pkg/kubelet/cm/devicemanager).
	kubeletPlugins = "/var/lib/kubelet/device-plugins"
	kubeletRoot    = "/var/lib/kubelet"
	kubeletConfig  = "/var/lib/kubelet/config.yaml" // where kubeadm puts it

	containerdSocket = "/run/containerd/containerd.sock"
	dockerSocket     = "/var/run/docker.sock"
)

// osReleases returns the files of os-release(5), in its order.
func osReleases() []string { return []string{"/etc/os-release", "/usr/lib/os-release"} }

// headerDirs returns where distributions put the build headers of a kernel release.
func headerDirs(release string) []string {
	return []string{
		"/lib/modules/" + release + "/build",
		"/usr/src/linux-headers-" + release, // Debian, Ubuntu
		"/usr/src/kernels/" + release,       // Fedora, RHEL
	}
}

// pciIDs returns where distributions put the PCI ID database.
func pciIDs() []string {
	return []string{
		"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/var/lib/pciutils/pci.ids",
		"/usr/share/pci.ids",
	}
}
