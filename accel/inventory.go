package accel

import (
	"cmp"
	"fmt"
	"strings"
)

// Inventory is the host's hardware. It is read once, when the agent starts. A field is empty if the firmware does not
// report it, or reports a placeholder such as "To Be Filled By O.E.M.".
type Inventory struct {
	Product Part `json:"product,omitzero"`
	Board   Part `json:"board,omitzero"`
	BIOS    BIOS `json:"bios,omitzero"`
	// Chassis is the type of chassis, such as "Rack mount chassis".
	Chassis string `json:"chassis,omitempty"`
	// MemoryMiB is the memory that is installed and online; UsableMiB is what the kernel can use of it.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	UsableMiB int64 `json:"usableMiB,omitempty"`
	// Processors are the processor packages, in order.
	Processors []Processor `json:"processors,omitempty"`
	// Nodes are the NUMA nodes, in order.
	Nodes []NUMANode `json:"nodes,omitempty"`
}

// Part is a component of the host as its vendor names it.
type Part struct {
	Vendor  string `json:"vendor,omitempty"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Serial  string `json:"serial,omitempty"`
}

// BIOS is the firmware of the host.
type BIOS struct {
	Vendor  string `json:"vendor,omitempty"`
	Version string `json:"version,omitempty"`
	Date    string `json:"date,omitempty"` // as the firmware writes it, usually month/day/year
}

// Processor is a processor package.
type Processor struct {
	Vendor  string `json:"vendor,omitempty"`
	Model   string `json:"model,omitempty"`
	Cores   int    `json:"cores"`
	Threads int    `json:"threads"`
}

// NUMANode is a NUMA node.
type NUMANode struct {
	ID        int   `json:"id"`
	Cores     int   `json:"cores"`
	Threads   int   `json:"threads"`
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// Distances are the distances to each node, in the order of the nodes: 10 to itself (ACPI, SLIT).
	Distances []int `json:"distances,omitempty"`
	// Package is the processor package that the node belongs to, by the kernel's number.
	Package Answer[int] `json:"package,omitzero"`
}

// String returns what is known in one line for people.
func (i Inventory) String() string {
	var parts []string
	add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
	if name := strings.TrimSpace(i.Product.Vendor + " " + i.Product.Name); name != "" {
		parts = append(parts, name)
	}
	if n := len(i.Processors); n > 0 {
		threads := 0
		for _, p := range i.Processors {
			threads += p.Threads
		}
		add("%d × %s, %d threads", n, cmp.Or(i.Processors[0].Model, "processor"), threads)
	}
	if i.MemoryMiB > 0 {
		add("%d GiB", (i.MemoryMiB+512)>>10)
	}
	if n := len(i.Nodes); n > 1 {
		add("%d NUMA nodes", n)
	}
	return strings.Join(parts, ", ")
}
