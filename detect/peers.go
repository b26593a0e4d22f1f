package detect

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// iommuGroups has one directory for each IOMMU group.
const iommuGroups = "/sys/kernel/iommu_groups"

// Peers reads what the functions at these addresses have to do with traffic between devices. A suspended function is
// not woken up, and a function that is not there has no entry.
func Peers(h *host.Host, pci []accel.PCIDevice, addresses []string) map[string]accel.PeerFunction {
	facts := accel.Facts{PCI: pci}
	out := map[string]accel.PeerFunction{}
	for _, address := range addresses {
		if d := facts.Function(address); d.Address != "" {
			out[address] = peerFunction(h, d)
		}
	}
	return out
}

func peerFunction(h *host.Host, d accel.PCIDevice) (f accel.PeerFunction) {
	dir := path.Join(pciDevices, d.Address)
	f.DMA = domain(h, d.IOMMUGroup)
	f.BARs = windows(h, dir)
	if suspended(h.Devices().Attributes(d.Address)) {
		f.Unread = "it is suspended"
		return f
	}
	b, err := h.ReadBinary(path.Join(dir, "config"))
	if err != nil {
		f.Unread = refusal(err)
		return f
	}
	config := accel.ConfigSpace(b)
	f.ACS = config.ACS()
	f.BARs = resizable(f.BARs, config.ResizableBARs())
	express := config.Express()
	switch {
	case !config.Readable():
		f.Unread = fmt.Sprintf("only %d bytes can be read", len(b))
	case express.Is(true) && !config.HasExtended():
		f.Unread = "the extended configuration space cannot be read"
	case !f.ACS.Known:
		f.Unread = "its capabilities cannot be read"
	}
	return f
}

// refusal is the kernel's word for an error, without the path.
func refusal(err error) string {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return err.Error()
}

// domain reads how the IOMMU treats a group (Documentation/ABI/testing/sysfs-kernel-iommu_groups).
func domain(h *host.Host, group int) accel.Answer[string] {
	if group < 0 {
		return accel.Known("")
	}
	s, err := h.ReadAttribute(path.Join(iommuGroups, strconv.Itoa(group), "type"))
	if err != nil || s == "" || !printable(s) {
		return accel.Answer[string]{}
	}
	return accel.Known(clip(s))
}

// windows reads the sizes of the memory windows of a function: the first six lines of its resource file, each with
// first address, last address and flags (Documentation/PCI/sysfs-pci.rst).
func windows(h *host.Host, dir string) (out []accel.BAR) {
	s, err := h.ReadAttribute(path.Join(dir, "resource"))
	if err != nil {
		return nil
	}
	const memory = 0x200 // IORESOURCE_MEM
	index := -1
	for line := range strings.SplitSeq(s, "\n") {
		if index++; index == 6 { // PCI_STD_NUM_BARS; the ROM and the windows of bridges follow
			break
		}
		first, last, flags, ok := region(line)
		if ok && flags&memory != 0 && last > first && last-first < 1<<62 {
			out = append(out, accel.BAR{Index: index, Size: int64(last - first + 1)})
		}
	}
	return out
}

func region(line string) (first, last, flags uint64, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return 0, 0, 0, false
	}
	var numbers [3]uint64
	for i, text := range fields {
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return 0, 0, 0, false
		}
		numbers[i] = n
	}
	return numbers[0], numbers[1], numbers[2], true
}

// resizable adds to the windows how large each can be. The kernel's view of a size wins over the function's own.
func resizable(windows, sizes []accel.BAR) []accel.BAR {
	for _, s := range sizes {
		known := false
		for i := range windows {
			if windows[i].Index == s.Index {
				known = true
				windows[i].Largest = s.Largest
			}
		}
		if !known {
			windows = append(windows, s)
		}
	}
	return windows
}
