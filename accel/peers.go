package accel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PeerFunction is what one PCI function has to do with traffic that devices send each other over PCI Express without a
// detour through the host's memory.
type PeerFunction struct {
	// ACS are the controls of Access Control Services; unknown if they could not be read.
	ACS Answer[ACS] `json:"acs"`
	// DMA is how the IOMMU treats the function, in the kernel's words: "DMA" and "DMA-FQ" translate, "identity" does
	// not. It is empty for a function without an IOMMU, and unknown if it could not be read.
	DMA Answer[string] `json:"dma"`
	// BARs are the function's windows of memory, by index.
	BARs []BAR `json:"bars,omitempty"`
	// Unread says why the configuration space could not be read as far as needed; empty if it was.
	Unread string `json:"unread,omitempty"`
}

// Peers are the devices of one kind on a host with what is between them.
type Peers struct {
	Definition *Definition
	Devices    []Accelerator
	Network    []NetworkFunction
	PCI        []PCIDevice
	// Functions are the devices, the network functions beside them and the ports above, by address.
	Functions map[string]PeerFunction
}

// PeerFinding is something that spoils traffic between peers. Without a Reason it is advice: whether it matters depends
// on what the devices are used for.
type PeerFinding struct {
	About    string
	Reason   Reason
	Message  string
	Evidence []string
	Remedy   string
}

// Near returns the network functions beside a device, the nearest first: those that have a port in common with it, so
// that traffic between the two need not pass the root complex.
func Near(a Accelerator, network []NetworkFunction) []NetworkFunction {
	var out []NetworkFunction
	for _, f := range network {
		if CommonPorts(a.Ports, f.Ports) > 0 {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(x, y NetworkFunction) int {
		return CommonPorts(a.Ports, y.Ports) - CommonPorts(a.Ports, x.Ports)
	})
	return out
}

// CommonPorts returns how many ports two functions have in common, from the root port down.
func CommonPorts(a, b []string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Addresses returns the functions that matter to the traffic of the devices: themselves, the network functions beside
// them, and the ports above both, each once and sorted.
func (p Peers) Addresses() []string {
	var out []string
	for _, a := range p.Devices {
		out = append(append(out, a.Address()), a.Ports...)
		for _, f := range Near(a, p.Network) {
			out = append(append(out, f.Address), f.Ports...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Findings says what spoils the traffic. Links are judged on every host; the rest only if a device has a peer: another
// device of its kind, or a network function beside it. Kinds that are given out with their IOMMU group are left out of
// the rest, because their devices are kept apart on purpose.
func (p Peers) Findings() []PeerFinding {
	out := p.links()
	near := slices.ContainsFunc(p.Devices, func(a Accelerator) bool { return len(Near(a, p.Network)) > 0 })
	if p.Definition.GivesGroup() || len(p.Devices) < 2 && !near {
		return out
	}
	for _, more := range []PeerFinding{p.redirected(), p.translated(), p.narrow(), p.unread()} {
		if len(more.Evidence) > 0 {
			out = append(out, more)
		}
	}
	return out
}

// links judges the links on the way from each device, and from each network function beside one, up to the root port.
func (p Peers) links() (out []PeerFinding) {
	seen := map[string]bool{}
	slow := PeerFinding{
		About: p.Definition.Kind + " link", Message: "links run slower than both ends can",
		Remedy: "Look again under load: many devices slow down an idle link. If it stays slow, reseat the card or the " +
			"riser, and look for a limit of the slot in the firmware's settings.",
	}
	narrow := PeerFinding{
		About: p.Definition.Kind + " link", Message: "the port above has fewer lanes than the device supports",
		Remedy: "Move the card to a slot with as many lanes, if the host has one.",
	}
	judge := func(address string, ports []string, fixedSpeed bool) {
		for i := len(ports) - 1; i >= 0; i -= 2 { // every second port is the upper end of a link
			low, high := p.function(address), p.function(ports[i])
			if lanes, speed := low.Link.With(high.Link); !seen[address] {
				at := fmt.Sprintf("%s below port %s: ", address, ports[i])
				switch {
				case low.Link.Width > 0 && low.Link.Width < lanes:
					out = append(out, linkFinding(address, ports[i], "has "+strconv.Itoa(low.Link.Width)+" of "+
						strconv.Itoa(lanes)+" lanes"))
				case low.Link.SpeedGTs > 0 && low.Link.SpeedGTs < speed && fixedSpeed:
					out = append(out, linkFinding(address, ports[i], "runs at "+gigatransfers(low.Link.SpeedGTs)+" of "+
						gigatransfers(speed)+" GT/s"))
				case low.Link.SpeedGTs > 0 && low.Link.SpeedGTs < speed:
					slow.Evidence = append(slow.Evidence, at+gigatransfers(low.Link.SpeedGTs)+" of "+
						gigatransfers(speed)+" GT/s")
				}
				if low.Link.Width > 0 && lanes < low.Link.MaxWidth {
					narrow.Evidence = append(narrow.Evidence, at+fmt.Sprintf("%d of %d lanes", lanes, low.Link.MaxWidth))
				}
			}
			if seen[address] = true; i == 0 {
				break
			}
			address = ports[i-1]
		}
	}
	for _, a := range p.Devices {
		judge(a.Address(), a.Ports, p.Definition.FixedLinkSpeed)
		for _, f := range Near(a, p.Network) {
			judge(f.Address, f.Ports, false)
		}
	}
	for _, more := range []PeerFinding{slow, narrow} {
		if len(more.Evidence) > 0 {
			out = append(out, more)
		}
	}
	return out
}

func linkFinding(address, port, says string) PeerFinding {
	return PeerFinding{
		About: LinkOf(address), Reason: LinkDegraded, Message: "the PCI Express link below port " + port + " " + says,
		Evidence: []string{"current_link_width, current_link_speed and their max_ of " + address + " and " + port},
		Remedy:   LinkDegraded.Doc().Remedy,
	}
}

// LinkOf is what a finding about the link of a function is about.
func LinkOf(address string) string { return "link " + address }

func gigatransfers(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (p Peers) function(address string) PCIDevice {
	f := Facts{PCI: p.PCI}
	return f.Function(address)
}

// underPort is how many devices and network functions are below a port.
type underPort struct{ devices, network int }

// redirected finds the ports whose Access Control Services send traffic between peers up to the root complex.
func (p Peers) redirected() PeerFinding {
	under, above := map[string]underPort{}, map[string][]string{}
	var ports []string
	count := func(chain []string, one underPort) {
		for i, port := range chain {
			if _, known := above[port]; !known {
				ports = append(ports, port)
			}
			n := under[port]
			under[port], above[port] = underPort{n.devices + one.devices, n.network + one.network}, chain[:i]
		}
	}
	beside := map[string]NetworkFunction{}
	for _, a := range p.Devices {
		count(a.Ports, underPort{devices: 1})
		for _, f := range Near(a, p.Network) {
			beside[f.Address] = f
		}
	}
	for _, f := range beside {
		count(f.Ports, underPort{network: 1})
	}
	slices.Sort(ports)
	out := PeerFinding{About: p.Definition.Kind + " peers"}
	short, names := false, []string(nil)
	for _, port := range ports {
		acs := p.Functions[port].ACS
		direct, any := p.between(under, port, above[port])
		if !any || !acs.Known || !acs.Value.Redirects() {
			continue
		}
		short = short || direct
		names = append(names, port)
		out.Evidence = append(out.Evidence, fmt.Sprintf("port %s: ACS control register 0x%04x (%s)", port,
			uint16(acs.Value), acs.Value))
	}
	out.Message = "Access Control Services of the root ports pass requests between peers to the IOMMU, one by one"
	if short {
		out.Message = "Access Control Services of ports send requests between peers up to the root complex, instead of " +
			"straight on"
	}
	out.Remedy = "If no virtual machine gets a device of this host, boot with pci=disable_acs_redir=" +
		strings.Join(names, ";") + " (Linux 4.19), or switch ACS off in the firmware. Devices below these ports can then " +
		"reach each other's memory."
	return out
}

// between reports whether a port is on the way between two peers, and whether that way has a port above both, so that
// it would be shorter than through the root complex. Above are the ports above the port.
func (p Peers) between(under map[string]underPort, port string, above []string) (direct, any bool) {
	here := under[port]
	for _, up := range above {
		all := under[up]
		if all.devices > here.devices || here.devices > 0 && all.network > here.network {
			return true, true
		}
	}
	return false, here.devices > 0 && len(p.Devices) > here.devices
}

// String names the controls as pciutils does.
func (a ACS) String() string {
	var on []string
	for i, name := range []string{
		"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans",
	} {
		if a>>i&1 != 0 {
			on = append(on, name)
		}
	}
	return strings.Join(on, " ")
}

// translated finds the peers whose addresses the IOMMU translates.
func (p Peers) translated() PeerFinding {
	out := PeerFinding{
		About: p.Definition.Kind + " peers",
		Message: "the IOMMU translates what devices send, so that requests between peers go through the root complex if " +
			"the driver uses translated addresses",
		Remedy: "If no virtual machine gets a device of this host, boot with iommu=pt.",
	}
	for _, a := range p.endpoints() {
		if mode := p.Functions[a].DMA; mode.Known && strings.HasPrefix(mode.Value, "DMA") {
			out.Evidence = append(out.Evidence, fmt.Sprintf("%s: IOMMU group %d has type %q", a,
				p.function(a).IOMMUGroup, mode.Value))
		}
	}
	return out
}

// endpoints returns the addresses of the devices and of the network functions beside them, sorted.
func (p Peers) endpoints() (out []string) {
	for _, a := range p.Devices {
		out = append(out, a.Address())
		for _, f := range Near(a, p.Network) {
			out = append(out, f.Address)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// narrow finds the devices whose memory peers can reach only in part: a window is smaller than the function supports,
// or than the memory.
func (p Peers) narrow() PeerFinding {
	out := PeerFinding{
		About: p.Definition.Kind + " peers", Message: "peers reach only a part of the devices' memory at a time",
		Remedy: "Switch on Above 4G Decoding and Resizable BAR in the firmware.",
	}
	for _, a := range p.Devices {
		var most BAR
		for _, b := range p.Functions[a.Address()].BARs {
			if b.Largest > b.Size {
				out.Evidence = append(out.Evidence, fmt.Sprintf("%s: BAR %d has %s, and the function supports %s",
					a.Address(), b.Index, size(b.Size), size(b.Largest)))
			}
			if b.Size > most.Size {
				most = b
			}
		}
		if all := a.Capacity[memoryAmount]; most.Size > 0 && all > most.Size && most.Largest <= most.Size {
			out.Evidence = append(out.Evidence, fmt.Sprintf("%s: the largest, BAR %d, has %s, and the device %s of memory",
				a.Address(), most.Index, size(most.Size), size(all)))
		}
	}
	return out
}

// size writes a number of bytes in the largest unit of which it is a multiple.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n > 0 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + " " + units[i]
}

// unread lists the functions of which too little could be read.
func (p Peers) unread() PeerFinding {
	out := PeerFinding{
		About: p.Definition.Kind + " peers", Message: "it is unknown whether anything spoils traffic between peers",
		Remedy: "Run acceld doctor as root on the host itself.",
	}
	endpoints := p.endpoints()
	for _, address := range p.Addresses() {
		f, isEndpoint := p.Functions[address], slices.Contains(endpoints, address)
		if isEndpoint && !f.DMA.Known {
			out.Evidence = append(out.Evidence, fmt.Sprintf("%s: the type of IOMMU group %d cannot be read", address,
				p.function(address).IOMMUGroup))
		}
		// A function without a link is not one of PCI Express and has neither.
		if f.Unread != "" && (!isEndpoint || p.function(address).Link != Link{}) {
			out.Evidence = append(out.Evidence, address+": "+f.Unread)
		}
	}
	return out
}
