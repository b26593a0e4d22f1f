package detect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// The kernel's lists of interfaces and RDMA devices; each entry links to its device.
const (
	netClass  = "/sys/class/net"
	rdmaClass = "/sys/class/infiniband"
	// verbsClass has an entry for each node below /dev/infiniband by which programs use an RDMA device; its attribute
	// ibdev names that device (Documentation/ABI/stable/sysfs-class-infiniband).
	verbsClass = "/sys/class/infiniband_verbs"
)

// Limits of what is reported about the network. Current functions have one interface, one RDMA device with at most two
// ports, and about ten versions and reporters.
const (
	maxFunctions = 256
	maxEach      = 32  // interfaces, devices, ports, versions, reporters of one function
	maxText      = 128 // bytes of a name or a version
)

// answerTime is how long a command waits for the kernel, because some drivers query their firmware.
const answerTime = 10 * time.Second

// Network returns the network functions among pci, with what the kernel reports about them until ctx ends. It queries
// the kernel only if there is such a function. The interfaces and RDMA devices of a function are read from sysfs below
// the host's root, for two reasons: sysfs shows those of the network namespace in which it was mounted, and netlink
// does not name the PCI function of an RDMA device or of an interface on a virtio device.
func Network(ctx context.Context, h *host.Host, pci []accel.PCIDevice) []accel.NetworkFunction {
	interfaces, devices := devicesOf(h, netClass), devicesOf(h, rdmaClass)
	var functions []accel.PCIDevice
	var names []string
	rdma := false
	for _, d := range pci {
		const network = "02" // PCI Code and ID Assignment Specification, base class
		if !strings.HasPrefix(d.Class, network) && devices[d.Address] == nil || len(functions) == maxFunctions {
			continue
		}
		functions = append(functions, d)
		names = append(names, interfaces[d.Address]...)
		rdma = rdma || devices[d.Address] != nil
	}
	if functions == nil {
		return nil
	}
	answers, nodes := h.Kernel().Network(ctx, names, rdma), map[string]string(nil)
	if rdma {
		nodes = verbs(h)
	}
	out := make([]accel.NetworkFunction, 0, len(functions))
	for _, d := range functions {
		f := networkFunction(d, pci, interfaces[d.Address], devices[d.Address], answers)
		for i := range f.Interfaces {
			f.Interfaces[i].SpeedMbps = attributeNumber(h, path.Join(netClass, f.Interfaces[i].Name, "speed"))
		}
		for k, r := range f.RDMA {
			f.RDMA[k].Verbs = nodes[r.Name]
			for i := range r.Ports {
				describePort(h, r.Name, &r.Ports[i])
			}
		}
		out = append(out, f)
	}
	return out
}

// devicesOf returns the sorted names of a class of devices by the PCI function that they belong to.
func devicesOf(h *host.Host, class string) map[string][]string {
	d, err := h.OpenDir(class)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, err := d.Names()
	if err != nil {
		return nil
	}
	out := map[string][]string{}
	for _, name := range names {
		if len(name) > maxText || !printable(name) {
			continue
		}
		// Such as ../../devices/pci0000:00/0000:00:03.0/virtio0/net/eth0: the last PCI address in the path is the
		// device's.
		for _, at := range slices.Backward(strings.Split(d.Readlink(name), "/")) {
			if isAddress(at) {
				if len(out[at]) < maxEach {
					out[at] = append(out[at], name)
				}
				break
			}
		}
	}
	return out
}

// networkFunction combines what is known about a function.
func networkFunction(
	d accel.PCIDevice, pci []accel.PCIDevice, interfaces, devices []string, answers host.NetworkAnswers,
) accel.NetworkFunction {
	f := accel.NetworkFunction{Address: d.Address, NUMANode: d.NUMANode, Driver: d.Driver}
	f.Ports, _ = accel.PortsAbove(d.Address, pci)
	if answers.Unknown != nil {
		f.Unknown = shorten(strings.ReplaceAll(answers.Unknown.Error(), "\n", "; "), 2*maxText)
	}
	for _, name := range interfaces {
		i := answers.Interfaces[name]
		i.Name = name
		f.Interfaces = append(f.Interfaces, i)
	}
	for _, name := range devices {
		r := answers.RDMA[name]
		r.Name = name
		r.Ports = r.Ports[:min(len(r.Ports), maxEach)]
		slices.SortFunc(r.Ports, func(a, b accel.RDMAPort) int { return cmp.Compare(a.Number, b.Number) })
		f.RDMA = append(f.RDMA, r.RDMADevice)
		f.Firmware = cmp.Or(f.Firmware, shorten(r.Firmware, maxText))
	}
	link := answers.Devlink[d.Address]
	f.Versions = versions(link.Running, nil)
	f.Pending = versions(link.Stored, link.Running)
	for _, name := range []string{"fw.mgmt", "fw.bundle_id", "fw.version", "fw"} { // the kernel's devlink-info.rst
		if v := f.Versions[name]; v != "" {
			f.Firmware = v
		}
	}
	for _, r := range link.Reporters[:min(len(link.Reporters), maxEach)] {
		r.Name = shorten(r.Name, maxText)
		f.Reporters = append(f.Reporters, r)
	}
	return f
}

// versions returns the versions in all that differ from those with the same name in others, at most maxEach.
func versions(all, others map[string]string) map[string]string {
	var out map[string]string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name]
		if name == "" || value == "" || value == others[name] || len(out) == maxEach {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[shorten(name, maxText)] = shorten(value, maxText)
	}
	return out
}

// describePort adds what only sysfs reports (Documentation/ABI/stable/sysfs-class-infiniband).
func describePort(h *host.Host, device string, p *accel.RDMAPort) {
	dir := path.Join(rdmaClass, device, "ports", strconv.Itoa(p.Number))
	text := func(file string) string {
		s, err := h.ReadAttribute(path.Join(dir, file))
		if err != nil || !printable(s) {
			return ""
		}
		return shorten(s, maxText)
	}
	p.Layer, p.Rate = text("link_layer"), text("rate")
	// The first GID consists of the subnet prefix and the port's GUID. On Ethernet it is derived from the MAC address
	// instead.
	if p.Layer == "InfiniBand" {
		p.Subnet, p.GUID = splitGID(text("gids/0"))
	}
}

// splitGID returns the subnet prefix and the GUID of a port's first GID, such as
// "fec0:0000:0000:0001:9803:9b03:00c0:ffee". Without them, each is empty. The prefix that every port has until a subnet
// manager gives it another (InfiniBand Architecture Specification 1.6, 4.1.1) names no subnet.
func splitGID(gid string) (subnet, guid string) {
	if len(gid) != 39 {
		return "", ""
	}
	for i := range 39 {
		if i%5 == 4 && gid[i] != ':' || i%5 != 4 && !isHex(gid[i:i+1]) {
			return "", ""
		}
	}
	const none, unset = "fe80:0000:0000:0000", "0000:0000:0000:0000"
	gid = strings.ToLower(gid)
	if subnet, guid = gid[:19], gid[20:]; subnet == none || subnet == unset {
		subnet = ""
	}
	return subnet, guid
}

// attributeNumber reads a number. It returns 0 if there is none, such as the speed of a link that is down.
func attributeNumber(h *host.Host, file string) int {
	s, _ := h.ReadAttribute(file) // on an error, s is no number
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0
	}
	return max(0, int(n))
}

// shorten returns s as valid UTF-8 of at most n bytes.
func shorten(s string, n int) string {
	s = strings.ToValidUTF8(s, "")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n-len("…")], "") + "…"
	}
	return s
}

// surroundings reads, for a command, what the agent reads seldom: the hardware inventory and the network.
func surroundings(h *host.Host, pci []accel.PCIDevice) (accel.Inventory, []accel.NetworkFunction, []string) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	var problems []string
	inventory, err := h.Inventory(ctx)
	if err != nil {
		problems = append(problems, fmt.Sprint(err))
	}
	return inventory, Network(ctx, h, pci), problems
}

// verbs returns the node of each RDMA device, by the device's name.
func verbs(h *host.Host) map[string]string {
	out := map[string]string{}
	for _, dir := range h.Glob(verbsClass, "uverbs[0-9]*") {
		device, err := h.ReadAttribute(path.Join(dir, "ibdev"))
		node := "/dev/infiniband/" + path.Base(dir)
		if err == nil && h.Exists(node) {
			out[device] = node
		}
	}
	return out
}
