package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/jaypipes/ghw"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// Limits of an inventory.
const (
	inventoryText  = 128 // bytes of a name
	inventoryParts = 1024
)

// Inventory reads what hardware the running machine consists of. It reads files of sysfs and procfs below the root and
// runs no program. With a thousand processors that is ten thousand files, so it is not for a hot path. When ctx ends,
// Inventory returns and the reading goroutine stays behind.
//
// The work is done by jaypipes/ghw, which opens paths as they are. Below a root other than the running machine's, a
// link could lead out of the root and a FIFO could block forever. So a copy of a machine has no inventory.
func (h *Host) Inventory(ctx context.Context) (accel.Inventory, error) {
	if !h.Live() {
		return accel.Inventory{}, nil
	}
	type answer struct {
		accel.Inventory
		error
	}
	answered := make(chan answer, 1)
	guard.Go(func() {
		i, err := inventory(h.root)
		for n := range i.Nodes {
			i.Nodes[n].Package = packageOf(h, i.Nodes[n].ID)
		}
		answered <- answer{i, err}
	})
	select {
	case a := <-answered:
		return a.Inventory, a.error
	case <-ctx.Done():
		return accel.Inventory{}, fmt.Errorf("cannot read what the host is made of: %w", ctx.Err())
	}
}

func inventory(root string) (i accel.Inventory, err error) {
	defer func() {
		if r := recover(); r != nil { // ghw indexes into what it reads without checking its length
			err = errors.Join(err, fmt.Errorf("cannot read what the host is made of: %v", r))
		}
	}()
	options := []any{
		ghw.WithChroot(root), ghw.WithDisableTools(), ghw.WithLogger(slog.New(slog.DiscardHandler)),
		// If sysfs does not report the memory, ghw searches all of /var/log/syslog* for a line about it.
		ghw.WithPathOverrides(map[string]string{"/var": "/nonexistent"}),
	}
	if p, err := ghw.Product(options...); err == nil {
		i.Product = part(p.Vendor, p.Name, p.Version, p.SerialNumber)
	}
	if b, err := ghw.Baseboard(options...); err == nil {
		i.Board = part(b.Vendor, b.Product, b.Version, b.SerialNumber)
	}
	if b, err := ghw.BIOS(options...); err == nil {
		i.BIOS = accel.BIOS{Vendor: said(b.Vendor), Version: said(b.Version), Date: said(b.Date)}
	}
	if c, err := ghw.Chassis(options...); err == nil {
		i.Chassis = said(c.TypeDescription)
	}
	memory, err := ghw.Memory(options...)
	if err == nil {
		i.MemoryMiB, i.UsableMiB = memory.TotalPhysicalBytes>>20, memory.TotalUsableBytes>>20
	}
	cpu, problem := ghw.CPU(options...)
	if problem == nil {
		for _, p := range cpu.Processors[:min(len(cpu.Processors), inventoryParts)] {
			one := accel.Processor{Vendor: said(p.Vendor), Model: said(p.Model)}
			one.Cores, one.Threads = int(p.TotalCores), int(p.TotalHardwareThreads)
			i.Processors = append(i.Processors, one)
		}
	}
	i.Nodes, err = nodes(options, errors.Join(err, problem))
	if err != nil {
		err = fmt.Errorf("cannot read what the host is made of: %w", err)
	}
	return i, err
}

// nodes reads the NUMA nodes. err is the error of the earlier reads and is passed on.
func nodes(options []any, err error) ([]accel.NUMANode, error) {
	topology, problem := ghw.Topology(options...)
	if problem != nil {
		return nil, errors.Join(err, problem)
	}
	var out []accel.NUMANode
	for _, n := range topology.Nodes[:min(len(topology.Nodes), inventoryParts)] {
		node := accel.NUMANode{ID: n.ID, Cores: len(n.Cores)}
		node.Distances = n.Distances[:min(len(n.Distances), inventoryParts)]
		for _, c := range n.Cores {
			node.Threads += len(c.LogicalProcessors)
		}
		if n.Memory != nil { // a platform without memory blocks knows only the usable part
			node.MemoryMiB = max(n.Memory.TotalPhysicalBytes, n.Memory.TotalUsableBytes) >> 20
		}
		out = append(out, node)
	}
	slices.SortFunc(out, func(a, b accel.NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	return out, err
}

// packageOf returns the processor package of a NUMA node: that of the first processor of its list. A node without
// processors has none.
func packageOf(h *Host, node int) accel.Answer[int] {
	list, err := h.ReadAttribute(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node))
	if err != nil {
		return accel.Answer[int]{}
	}
	end := strings.IndexFunc(list, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(list)
	}
	cpu, err := strconv.ParseUint(list[:end], 10, 16)
	if err != nil {
		return accel.Answer[int]{}
	}
	text, err := h.ReadAttribute(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu))
	if err != nil {
		return accel.Answer[int]{}
	}
	id, err := strconv.ParseUint(text, 10, 31)
	if err != nil { // -1 where the platform does not know
		return accel.Answer[int]{}
	}
	return accel.Known(int(id))
}

func part(vendor, name, version, serial string) accel.Part {
	return accel.Part{Vendor: said(vendor), Name: said(name), Version: said(version), Serial: said(serial)}
}

// said cleans up a text of the firmware. It returns "" for a placeholder that the vendor never filled in.
func said(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
	text = strings.Join(words, " ")
	text = strings.ToValidUTF8(text[:min(len(text), inventoryText)], "")
	placeholders := []string{
		"unknown", "none", "n/a", "empty", "undefined", "default string", "not specified", "not applicable", "o.e.m.",
		"not available", "to be filled by o.e.m.", "system manufacturer", "system product name", "system version",
		"system serial number", "0123456789",
	}
	if slices.Contains(placeholders, strings.ToLower(text)) || strings.Trim(text, "0. xX-") == "" {
		return ""
	}
	return text
}

// maxProcessors bounds the numbers of processors (CONFIG_NR_CPUS of x86 is at most 8192).
const maxProcessors = 1 << 14

// ProcessorNodes returns the NUMA nodes of the processors that are online, by their numbers.
func ProcessorNodes(h *Host) map[int64]int {
	out := map[int64]int{}
	for _, dir := range h.Glob("/sys/devices/system/node", "node[0-9]*") {
		node, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "node"))
		list, unread := h.ReadAttribute(path.Join(dir, "cpulist"))
		if err != nil || unread != nil {
			continue
		}
		for part := range strings.SplitSeq(list, ",") {
			first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
			if !isRange {
				last = first
			}
			from, err1 := strconv.ParseUint(first, 10, 16)
			to, err2 := strconv.ParseUint(last, 10, 16)
			if err1 != nil || err2 != nil || to >= maxProcessors {
				continue // a node without processors has an empty list
			}
			for cpu := from; cpu <= to; cpu++ {
				out[int64(cpu)] = node
			}
		}
	}
	return out
}
