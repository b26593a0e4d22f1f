// Package bench compares a complete detection with lspci on one tree of the same machine, in one run. It measures; it
// asserts only a ratio, and only when asked.
package bench

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The synthetic machine: as many PCI functions as a host with eight accelerators, their switches and virtual functions
// has, and modules and processes as on a usual server.
const (
	functions = 200
	modules   = 120
	builtins  = 80
	processes = 300
)

// makeTree writes the machine and returns its root.
func makeTree(tb testing.TB) string {
	tb.Helper()
	root := tb.TempDir()
	write := func(name, text string) {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	link := func(target, name string) {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.Symlink(target, p); err != nil {
			tb.Fatal(err)
		}
	}
	for i := range functions {
		addFunction(i, write, link)
	}
	if err := os.MkdirAll(filepath.Join(root, "sys/bus/pci/slots"), 0o755); err != nil { // lspci lists it
		tb.Fatal(err)
	}
	for i := range modules {
		dir := fmt.Sprintf("sys/module/module%d/", i)
		write(dir+"initstate", "live\n")
		write(dir+"refcnt", fmt.Sprintf("%d\n", i%3))
		write(dir+"srcversion", "0123456789ABCDEF0123456\n")
		write(dir+"version", "1.0\n")
		write(dir+"taint", "\n")
		write(dir+"notes/.note.gnu.build-id", note())
		link("../../module0", dir+"holders/module0")
	}
	for i := range builtins {
		write(fmt.Sprintf("sys/module/builtin%d/parameters/x", i), "0\n")
	}
	for i := range processes {
		write(fmt.Sprintf("proc/%d/comm", i+1), "bash\n")
		write(fmt.Sprintf("proc/%d/cmdline", i+1), "bash\x00")
	}
	write(fmt.Sprintf("proc/%d/comm", processes), "kubelet\n")
	write(fmt.Sprintf("proc/%d/status", processes), "Name:\tkubelet\nPPid:\t1\nUid:\t0\t0\t0\t0\nNSpid:\t2\n")
	write(fmt.Sprintf("proc/%d/cgroup", processes), "0::/system.slice/kubelet.service\n")
	write(fmt.Sprintf("proc/%d/cmdline", processes), "kubelet\x00--config=/var/lib/kubelet/config.yaml\x00")
	write("var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n")
	write("var/lib/kubelet/device-plugins/kubelet.sock", "")
	write("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n")
	write("sys/kernel/notes", note())
	for name, text := range map[string]string{
		"osrelease": "6.1.0", "version": "#1 SMP", "arch": "x86_64",
		"random/boot_id": "x", "tainted": "0",
	} {
		write("proc/sys/kernel/"+name, text+"\n")
	}
	if ids, err := os.ReadFile("/usr/share/misc/pci.ids"); err == nil { // what lspci reads, too
		write("usr/share/misc/pci.ids", string(ids))
	}
	return root
}

// addFunction writes function i: every tenth is a bridge, the others are below it.
func addFunction(i int, write, link func(name, text string)) {
	bridge := fmt.Sprintf("0000:00:%02x.0", i/10+1)
	address, dir := bridge, "sys/devices/pci0000:00/"+bridge
	vendor, device, class := uint16(0x8086), uint16(0x352a), uint32(0x060400)
	if i%10 != 0 {
		address = fmt.Sprintf("0000:%02x:00.%d", i/10+1, i%10%8)
		if i%10 >= 8 {
			address = fmt.Sprintf("0000:%02x:01.%d", i/10+1, i%10%8)
		}
		dir += "/" + address
		vendor, device, class = 0x1af4, 0x1042, 0x018000
	}
	config := make([]byte, 256)
	binary.LittleEndian.PutUint16(config, vendor)
	binary.LittleEndian.PutUint16(config[2:], device)
	binary.LittleEndian.PutUint32(config[8:], class<<8)
	binary.LittleEndian.PutUint16(config[0x2c:], vendor)
	binary.LittleEndian.PutUint16(config[0x2e:], device)
	write(dir+"/config", string(config))
	for name, text := range map[string]string{
		"class": fmt.Sprintf("%#08x", class), "vendor": fmt.Sprintf("%#04x", vendor),
		"device":           fmt.Sprintf("%#04x", device),
		"subsystem_vendor": fmt.Sprintf("%#04x", vendor), "subsystem_device": fmt.Sprintf("%#04x", device),
		"revision":  "0x01",
		"numa_node": "0", "driver_override": "(null)", "irq": "11", "resource": strings.Repeat("0x0 0x0 0x0\n", 13),
		"modalias": fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X", vendor, device, vendor, device,
			class>>16, class>>8&255, class&255),
		"uevent": fmt.Sprintf("DRIVER=x\nPCI_CLASS=%04X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\n",
			class, vendor, device, vendor, device, address),
		"current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe", "current_link_width": "16",
		"max_link_width": "16",
	} {
		write(dir+"/"+name, text+"\n")
	}
	up := strings.Repeat("../", strings.Count(dir, "/"))
	link(up+"bus/pci/drivers/x", dir+"/driver")
	link(up+fmt.Sprintf("kernel/iommu_groups/%d", i), dir+"/iommu_group")
	link("../../../"+strings.TrimPrefix(dir, "sys/"), "sys/bus/pci/devices/"+address)
}

// note is an ELF note with a build id.
func note() string {
	return "\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\x00" + strings.Repeat("\xab", 20)
}
