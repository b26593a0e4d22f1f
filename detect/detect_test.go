package detect

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// machine writes files into a root.
func machine(t *testing.T, files map[string]string) *host.Host {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestIsAddress(t *testing.T) {
	for s, want := range map[string]bool{
		"0000:00:04.0": true, "10000:e1:00.7": true, "0000:00:04.8": false, "000:00:04.0": false, "0000:00:04": false,
		"":             false,
		"0000:0g:04.0": false, "../../:00:04.0": false, "0000:00:04.0/": false,
	} {
		if got := isAddress(s); got != want {
			t.Errorf("isAddress(%q) is %t", s, got)
		}
	}
}

func TestSpeed(t *testing.T) {
	for s, want := range map[string]float64{
		"2.5 GT/s PCIe": 2.5, "16 GT/s": 16, "64.0 GT/s PCIe": 64, "Unknown": 0, "Unknown speed": 0, "": 0, "8.0": 0,
		"-8 GT/s": 0, "Inf GT/s": 0, "NaN GT/s": 0,
	} {
		if got := speed(s); got != want {
			t.Errorf("speed(%q) is %v, want %v", s, got, want)
		}
	}
}

func TestUevent(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     accel.PCIDevice
		ok       bool
	}{
		{
			"short class", "DRIVER=edu\nPCI_CLASS=FF00\nPCI_ID=1234:11E8\nPCI_SUBSYS_ID=1AF4:1100\n",
			accel.PCIDevice{
				Class: "00ff00", Vendor: "1234", Device: "11e8", SubVendor: "1af4", SubDevice: "1100",
				Driver: "edu",
			},
			true,
		},
		{
			"no driver, no subsystem", "PCI_CLASS=30200\nPCI_ID=F00D:0100",
			accel.PCIDevice{Class: "030200", Vendor: "f00d", Device: "0100"},
			true,
		},
		{"no class", "PCI_ID=F00D:0100", accel.PCIDevice{}, false},
		{"long class", "PCI_CLASS=1000000\nPCI_ID=F00D:0100", accel.PCIDevice{}, false},
		{"a driver that is a path", "DRIVER=../x\nPCI_CLASS=30200\nPCI_ID=F00D:0100", accel.PCIDevice{}, false},
		{"garbage", "\x00\xff", accel.PCIDevice{}, false},
	} {
		var got accel.PCIDevice
		if ok := uevent(c.in, &got); ok != c.ok || got != c.want {
			t.Errorf("%s: %t %+v, want %t %+v", c.name, ok, got, c.ok, c.want)
		}
	}
}

func TestOSRelease(t *testing.T) {
	got := assignments(
		"# comment\nID=ubuntu\n\nPRETTY_NAME=\"A \\\"B\\\" \\$C \\\\\"\nVERSION_ID='24.04'\nnothing\nEMPTY=\nHALF=\"x\n")
	want := map[string]string{
		"ID": "ubuntu", "PRETTY_NAME": `A "B" $C \`, "VERSION_ID": "24.04", "EMPTY": "",
		"HALF": `"x`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	o, problems := OS(machine(t, map[string]string{"usr/lib/os-release": "NAME=x\n"}))
	if o.ID != "linux" || problems != nil {
		t.Errorf("without an ID: %+v, %q; want linux", o, problems)
	}
}

// TestOSBase: definitions see the distribution that kernel and packages belong to. On Red Hat Enterprise Linux CoreOS
// that is not what ID and VERSION_ID say, until version 10.
func TestOSBase(t *testing.T) {
	const rhcos = "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=\"rhcos\"\nID_LIKE=\"rhel fedora\"\n"
	for _, c := range []struct{ name, text, major, id, version string }{
		{"Debian", "ID=debian\nVERSION_ID=\"12\"\n", "debian12", "debian", "12"},
		{"RHEL", "ID=\"rhel\"\nVERSION_ID=\"9.4\"\n", "rhel9", "rhel", "9.4"},
		{"no version", "ID=arch\n", "arch", "arch", ""},
		{
			"RHCOS 4.12",
			rhcos +
				"VERSION=\"412.86.202301311551-0\"\nVERSION_ID=\"4.12\"\nOPENSHIFT_VERSION=\"4.12\"\nRHEL_VERSION=\"8.6\"\n",
			"rhel8", "rhel", "8.6",
		},
		{
			"RHCOS 4.14",
			rhcos +
				"VERSION=\"414.92.202403051622-0\"\nVERSION_ID=\"4.14\"\nOPENSHIFT_VERSION=\"4.14\"\nRHEL_VERSION=\"9.2\"\n",
			"rhel9", "rhel", "9.2",
		},
		{
			"RHCOS that does not say it", rhcos + "VERSION_ID=\"4.1\"\nOPENSHIFT_VERSION=\"4.1\"\n", "rhcos4", "rhcos",
			"4.1",
		},
		{
			"RHCOS 10",
			"NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=\"rhel\"\nVERSION_ID=\"10.1\"\nVARIANT_ID=coreos\n",
			"rhel10", "rhel", "10.1",
		},
	} {
		o, problems := OS(machine(t, map[string]string{"etc/os-release": c.text}))
		if id, version := o.Base(); o.Major() != c.major || id != c.id || version != c.version || problems != nil {
			t.Errorf("%s: %s, %s %s, %q", c.name, o.Major(), id, version, problems)
		}
	}
}

func TestBuildID(t *testing.T) {
	id := strings.Repeat("ab", 20)
	for name, c := range map[string]struct{ in, want string }{
		"little-endian": {"040000001400000003000000474e5500" + id, id},
		"big-endian":    {"00000004000000140000000347 4e5500" + id, id},
		"after another, padded": {"05000000 02000000 01000000 58656e5f5f000000 beef0000" +
			"040000001400000003000000474e5500" + id, id},
		"truncated":     {"040000001400000003000000474e5500abab", ""},
		"no note":       {"0400", ""},
		"enormous":      {"fffffffffffffffffffffffffffffffffff0", ""},
		"another owner": {"040000001400000003000000476f0000" + id, ""},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(c.in, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := buildID(b); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestKernelGates(t *testing.T) {
	efi := map[string]string{"on": "\x06\x00\x00\x00\x01", "off": "\x06\x00\x00\x00\x00", "short": "\x01"}
	for name, want := range map[string]bool{"on": true, "off": false, "short": false} {
		k, _ := Kernel(machine(t, map[string]string{
			secureBootVariable: efi[name], sigEnforce: "Y\n", procModulesDisabled: "1\n",
			kernelLockdown: "none integrity [confidentiality]\n", procTainted: "12289\n",
		}))
		if k.SecureBoot != want || !k.SigEnforce || !k.ModulesDisabled || k.Lockdown != "confidentiality" ||
			k.Taint != 12289 {
			t.Errorf("secure boot %s: %+v", name, k)
		}
	}
}

func TestHeaders(t *testing.T) {
	h := machine(t, map[string]string{
		"usr/src/linux-headers-6.1/Makefile": "", "lib/modules/6.1/modules.dep": "",
		"usr/src/kernels/6.2/Makefile": "",
	})
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(h.Root(), name)); err != nil {
			t.Fatal(err)
		}
	}
	link("../../../usr/src/linux-headers-6.1", "lib/modules/6.1/build")
	for release, want := range map[string]string{
		"6.1": "/usr/src/linux-headers-6.1", "6.2": "/usr/src/kernels/6.2",
		"6.3": "", "": "", "../x": "",
	} {
		if got := headers(h, release); got != want {
			t.Errorf("headers of %q are in %q, want %q", release, got, want)
		}
	}
}

func TestEngine(t *testing.T) {
	const plugins, sock = "var/lib/kubelet/device-plugins/x", "run/containerd/containerd.sock"
	kubelet := func(args ...string) string { return "kubelet\x00" + strings.Join(args, "\x00") + "\x00" }
	for _, c := range []struct {
		name  string
		files map[string]string
		want  accel.ContainerEngine
		root  string
	}{
		{"nothing", nil, accel.ContainerEngine{}, ""},
		{
			"a socket without a kubelet",
			map[string]string{sock: "", "run/podman/podman.sock": ""},
			accel.ContainerEngine{
				Name: "containerd", Endpoint: "unix:///run/containerd/containerd.sock",
				From: "socket", Config: "/etc/containerd/config.toml",
			},
			"",
		},
		{
			"docker with its containerd",
			map[string]string{sock: "", "var/run/docker.sock": ""},
			accel.ContainerEngine{
				Name: "docker", Endpoint: "unix:///var/run/docker.sock", From: "socket",
				Config: "/etc/docker/daemon.json",
			},
			"",
		},
		{
			"a kubelet beside docker",
			map[string]string{plugins: "", sock: "", "var/run/docker.sock": ""},
			accel.ContainerEngine{
				Name: "containerd", Endpoint: "unix:///run/containerd/containerd.sock",
				From: "socket", Config: "/etc/containerd/config.toml",
			},
			kubeletRoot,
		},
		{
			"a kubelet that does not say",
			map[string]string{plugins: "", "var/run/crio/crio.sock": "", sock: ""},
			accel.ContainerEngine{
				Name: "cri-o", Endpoint: "unix:///var/run/crio/crio.sock", From: "socket",
				Config: "/etc/crio/crio.conf",
			},
			kubeletRoot,
		},
		{
			"configuration",
			map[string]string{
				plugins: "", sock: "",
				kubeletConfig: "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock",
			},
			accel.ContainerEngine{
				Name: "cri-o", Endpoint: "unix:///var/run/crio/crio.sock", From: "kubelet",
				Config: "/etc/crio/crio.conf",
			},
			kubeletRoot,
		},
		{
			"arguments win",
			map[string]string{
				plugins: "", kubeletConfig: "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock",
				"proc/20/comm": "kubelet\n", "proc/20/cmdline": kubelet("-root-dir", "/k",
					"--container-runtime-endpoint=/run/k3s/containerd/containerd.sock"),
				"proc/20/status": status("0", "20"), "proc/20/cgroup": "0::/\n",
				"proc/3/comm": "systemd\n", "proc/100/comm": "kubelet\n",
				"proc/100/cmdline": kubelet("--root-dir=/nested"),
				"proc/100/status":  status("0", "100"), "proc/100/cgroup": "0::/\n",
			},
			accel.ContainerEngine{
				Name: "containerd", Endpoint: "unix:///run/k3s/containerd/containerd.sock",
				From: "kubelet", Layout: "k3s", Config: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
			},
			"/k",
		},
		{
			"another runtime",
			map[string]string{plugins: "", kubeletConfig: `{"containerRuntimeEndpoint":"unix:///run/other.sock"}`},
			accel.ContainerEngine{Endpoint: "unix:///run/other.sock", From: "kubelet"},
			kubeletRoot,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := machine(t, c.files)
			if c.files[plugins] == "" && c.files != nil { // every machine with a kubelet has /proc
				if err := os.MkdirAll(filepath.Join(h.Root(), "proc"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			got, problems := Engine(h)
			k, _ := (&look{Host: h}).kubeletAndEngine()
			if _, told := c.files[kubeletConfig]; told != (k.TopologyPolicy == "none" && k.TopologyScope == "container") {
				t.Errorf("the topology manager: %q, %q", k.TopologyPolicy, k.TopologyScope)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || k.Root != c.root || problems != nil {
				t.Errorf("root %q, %q; want %q (-want +got):\n%s", k.Root, problems, c.root, diff)
			}
		})
	}
}

// TestTopologyManager: arguments go before files, and what does not look like a setting is none.
func TestTopologyManager(t *testing.T) {
	for _, c := range []struct{ file, args, want string }{
		{"topologyManagerPolicy: single-numa-node\ntopologyManagerScope: pod\n", "", "single-numa-node pod"},
		{"topologyManagerPolicy: restricted\n", "--topology-manager-policy=best-effort", "best-effort container"},
		{"topologyManagerPolicy: '<script>'\n", "", " container"},
	} {
		h := machine(t, map[string]string{kubeletConfig: c.file})
		s := (&look{Host: h}).kubeletSettings([]string{"kubelet", c.args})
		if got := s.Policy + " " + s.Scope; got != c.want {
			t.Errorf("%q %q: %q, want %q", c.file, c.args, got, c.want)
		}
	}
	if s := (&look{Host: machine(t, map[string]string{})}).kubeletSettings(nil); s.Policy+s.Scope != "" {
		t.Errorf("without a file: %+v", s)
	}
}

func TestNames(t *testing.T) {
	database :=
		"# x\n1234  Technical Corp.\n\t11e8  QEMU edu\n\t\t1af4 1100  a subsystem\n\t11e9  other\n1235  Nobody\n\t11e8  not this\n" +
			"abcd  Later\nC 12  Processing accelerators\n\t00  x\n1236  not a vendor\n"
	devices := []accel.PCIDevice{
		{Vendor: "1234", Device: "11e8"},
		{Vendor: "abcd", Device: "0001"},
		{Vendor: "1236", Device: "0000"},
		{Vendor: "1234", Device: "11e8"},
	}
	if err := scanNames(strings.NewReader(database), devices); err != nil {
		t.Fatal(err)
	}
	want := []string{"Technical Corp.|QEMU edu", "Later|", "|", "Technical Corp.|QEMU edu"}
	for i, d := range devices {
		if got := d.VendorName + "|" + d.DeviceName; got != want[i] {
			t.Errorf("device %d is %q, want %q", i, got, want[i])
		}
	}
}

// A machine of the largest size, and the order of the list.
func TestTenThousandFunctions(t *testing.T) {
	const n = 10000
	h := machine(t, map[string]string{
		"sys/devices/one/uevent":                  "PCI_CLASS=FF00\nPCI_ID=1234:11E8\n",
		"sys/bus/pci/devices/0000:ff:1f.7/uevent": "garbage",
	})
	for i := range n {
		name := fmt.Sprintf("sys/bus/pci/devices/%04x:%02x:%02x.%d", i>>16, i>>8, i>>3&31, i&7)
		if err := os.Symlink("../../../devices/one", filepath.Join(h.Root(), name)); err != nil {
			t.Fatal(err)
		}
	}
	pci, problems := PCI(h)
	if len(problems) != 1 || len(pci) != n {
		t.Fatalf("%d functions of %d, %q", len(pci), n, problems)
	}
	for i := 1; i < len(pci); i++ {
		if pci[i-1].Address >= pci[i].Address {
			t.Fatalf("%s is before %s", pci[i-1].Address, pci[i].Address)
		}
	}
}

// What was not found out is unknown, and neither off nor none.
func TestSecureBoot(t *testing.T) {
	const variable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	for name, c := range map[string]struct {
		files map[string]string
		want  accel.Kernel
	}{
		"nothing": {nil, accel.Kernel{LockdownUnknown: true, SecureBootUnknown: true}},
		"no EFI":  {map[string]string{"sys/firmware/acpi/x": ""}, accel.Kernel{LockdownUnknown: true}},
		"EFI whose variables are not mounted": {
			map[string]string{"sys/firmware/efi/systab": ""},
			accel.Kernel{LockdownUnknown: true, SecureBootUnknown: true},
		},
		"EFI without the variable": {
			map[string]string{"sys/firmware/efi/efivars/Boot0000": "x"}, accel.Kernel{LockdownUnknown: true},
		},
		"on":    {map[string]string{variable: "\x06\x00\x00\x00\x01"}, accel.Kernel{LockdownUnknown: true, SecureBoot: true}},
		"off":   {map[string]string{variable: "\x06\x00\x00\x00\x00"}, accel.Kernel{LockdownUnknown: true}},
		"short": {map[string]string{variable: "\x01"}, accel.Kernel{LockdownUnknown: true, SecureBootUnknown: true}},
		"locked down": {
			map[string]string{"sys/kernel/security/lockdown": "none [integrity] confidentiality", "sys/firmware/x": ""},
			accel.Kernel{Lockdown: "integrity"},
		},
		"no lockdown": {
			map[string]string{"sys/kernel/security/lsm": "capability", "sys/firmware/x": ""}, accel.Kernel{},
		},
	} {
		k, _ := Kernel(machine(t, c.files))
		got := accel.Kernel{
			Lockdown: k.Lockdown, LockdownUnknown: k.LockdownUnknown, SecureBoot: k.SecureBoot,
			SecureBootUnknown: k.SecureBootUnknown,
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An empty machine has only problems, and few of them.
func TestEmptyMachine(t *testing.T) {
	f := Detect(machine(t, nil), Options{Names: true})
	if len(f.Problems) < 5 || len(f.Problems) > 12 {
		t.Errorf("problems: %q", f.Problems)
	}
	f.Problems = nil
	nothing := accel.Facts{Kernel: accel.Kernel{LockdownUnknown: true, SecureBootUnknown: true}}
	if diff := cmp.Diff(nothing, f); diff != "" {
		t.Errorf("facts of nothing: %s", diff)
	}
}

func FuzzBuildID(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00GNU\x00\x01\x02"))
	f.Fuzz(func(_ *testing.T, b []byte) { buildID(b) })
}

func FuzzNames(f *testing.F) {
	f.Add([]byte("1234  x\n\t11e8  y\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := []accel.PCIDevice{{Vendor: "1234", Device: "11e8"}}
		if err := scanNames(bytes.NewReader(b), d); err != nil {
			t.Error(err)
		}
	})
}
