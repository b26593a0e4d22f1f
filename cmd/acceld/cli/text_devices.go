package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// deviceColumn is a column of the table of devices.
type deviceColumn struct {
	head string
	cell func(m shown, s *tableWriter, a accel.Accelerator) string
	// drop says which column goes first if the table is too wide: the one with the highest number. One with zero stays.
	// One below zero is only in the wide table.
	drop int
}

// wideAlone marks the columns of the wide table alone.
const wideAlone = -1

// deviceColumns are the columns in their order.
func deviceColumns() []deviceColumn {
	return []deviceColumn{
		{"DEVICE", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return deviceName(a) }, 0},
		{"MODEL", func(m shown, _ *tableWriter, a accel.Accelerator) string { return m.model(a) }, wideAlone},
		{"HEALTH", func(_ shown, s *tableWriter, a accel.Accelerator) string { return s.health(a) }, 0},
		{"FOR", func(m shown, _ *tableWriter, a accel.Accelerator) string { return ageOf(m.now, a.Health.Since) }, 2},
		{"BUSY", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return a.Readings().UtilizationText() }, 0},
		{"MEMORY", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return a.Readings().MemoryText() }, 0},
		{"POWER", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return a.Readings().PowerText() }, 1},
		{"TEMP", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return a.Readings().TemperatureText() }, 0},
		{"NODES", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return nodes(a) }, 3},
		{"HELD BY", func(m shown, _ *tableWriter, a accel.Accelerator) string { return m.held(a) }, 0},
		{"DRIVER", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return a.Bound }, wideAlone},
		{"LINK", func(m shown, _ *tableWriter, a accel.Accelerator) string {
			return linkText(m.Facts.Function(a.ID).Link)
		}, wideAlone},
		{"NUMA", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return numa(a.NUMANode) }, 4},
		{"SERIAL", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return plain(a.Serial) }, 5},
		{"UUID", func(_ shown, _ *tableWriter, a accel.Accelerator) string { return plain(a.UUID) }, wideAlone},
	}
}

// columnsAt returns the columns of a table of which those are dropped whose number is at least drop.
func columnsAt(drop int, wide bool) []deviceColumn {
	return slices.DeleteFunc(deviceColumns(), func(c deviceColumn) bool {
		return !wide && (c.drop == wideAlone || c.drop >= drop)
	})
}

// deviceRows returns the table of devices with these columns. Those in which no device has anything are left out, but
// not in the wide table, where a dash says that it is not known.
func deviceRows(m shown, s *tableWriter, devices []accel.Accelerator, columns []deviceColumn) [][]string {
	rows := make([][]string, len(devices)+1)
	for _, c := range columns {
		cells := []string{c.head}
		some := m.wide
		for _, a := range devices {
			text := c.cell(m, s, a)
			some = some || text != ""
			cells = append(cells, cmp.Or(text, "-"))
		}
		if !some {
			continue
		}
		for i := range rows {
			rows[i] = append(rows[i], cells[i])
		}
	}
	return rows
}

// printDevices writes a table of the devices, those that need attention first, with problems below each row. If the
// table is wider than the tableWriter, it drops columns; if it is still too wide, each device gets a block.
func printDevices(s *tableWriter, m shown, have accel.Have) {
	devices := accel.Flat(accel.SickFirst(have.Accelerators))
	if len(devices) == 0 {
		return
	}
	const all = 6
	for drop := all; drop > 0; drop-- {
		columns := columnsAt(drop, m.wide)
		lines, width := aligned(deviceRows(m, s, devices, columns))
		if s.width > 0 && width+2 > s.width && !m.wide {
			continue
		}
		s.b.WriteString("  " + lines[0] + "\n")
		for i, a := range devices {
			s.b.WriteString("  " + lines[i+1] + "\n")
			printTrouble(s, withoutParents(devices[:i], a), drop < all)
			printUse(s, m, a)
		}
		return
	}
	for i, a := range devices {
		printDevice(s, m, withoutParents(devices[:i], a))
	}
}

// withoutParents leaves out why a part is withheld if its whole device, which is one of those before it, is withheld
// for the same reason: that was written there.
func withoutParents(before []accel.Accelerator, a accel.Accelerator) accel.Accelerator {
	for _, whole := range before {
		if a.WithheldWith(whole) {
			a.Withheld = nil
		}
	}
	return a
}

// printDevice writes one device as a block.
func printDevice(s *tableWriter, m shown, a accel.Accelerator) {
	s.line(2, deviceName(a)+"  "+s.health(a)+since("  ", m.now, a.Health.Since))
	printTrouble(s, a, false)
	printUse(s, m, a)
	r := a.Readings()
	s.field(4, "held by", m.held(a))
	s.field(4, "nodes", strings.ReplaceAll(nodes(a), ",", ", "))
	s.field(4, "reads", filled(", ", prefixed("busy ", r.UtilizationText()), prefixed("memory ", r.MemoryText()),
		prefixed("power ", r.PowerText()), r.TemperatureText()))
	s.field(4, "also", filled(", ", prefixed("NUMA ", numa(a.NUMANode)), prefixed("serial ", plain(a.Serial))))
}

// printTrouble writes what is wrong with a device, the evidence, what to do, and with serial its serial number, if the
// table dropped it.
func printTrouble(s *tableWriter, a accel.Accelerator, serial bool) {
	if a.WithheldAlone() {
		s.field(4, "withheld", string(a.Withheld.Reason)+prefixed(": ", plain(a.Withheld.Message)))
	}
	if a.Switched != nil {
		s.field(4, "use", plain(a.Switched.String()))
	}
	if a.Divided != nil {
		s.field(4, "use", plain(a.Divided.String()))
	}
	if a.Handover != nil {
		s.field(4, "hand-over", plain(a.Handover.String()))
	}
	for _, x := range a.Deviations() {
		paint := s.wait
		if x.Reason() != "" {
			paint = s.bad
		}
		s.field(4, "setting", paint(plain(x.String())))
		if r := x.Reason(); r != "" {
			s.field(4, "do", r.Doc().Remedy+" ("+string(r.Doc().Actor)+")")
		}
	}
	if a.Unrequested != nil {
		for _, text := range a.Unrequested.Lines() {
			s.field(4, "in use", "without a request: "+plain(text))
		}
	}
	h := a.Health
	if h.State == accel.Healthy || h.State == "" {
		return
	}
	s.field(4, "why", s.bad(string(h.Reason))+prefixed(": ", plain(h.Message)))
	s.field(4, "seen", plain(h.Evidence))
	s.field(4, "do", a.Remedy())
	if a.Repair != nil {
		s.field(4, "repair", plain(a.Repair.String()))
	}
	if a.Recorded > 1 {
		s.field(4, "before", fmt.Sprintf("%d faults on record: acceld history %s", a.Recorded, cmp.Or(plain(a.Serial), a.ID)))
	}
	if serial {
		s.field(4, "serial", plain(a.Serial))
	}
}

func deviceName(a accel.Accelerator) string {
	if a.Profile != "" {
		return "- " + a.ID // a partition, listed below its device
	}
	return a.ID
}

// model returns the best known name of a device: its own, or the PCI id database's.
func (m shown) model(a accel.Accelerator) string {
	return plain(cmp.Or(a.Model, m.Facts.Function(a.Address()).DeviceName))
}

// held names who holds a device: the pods that were given it, the claim of a virtual machine, or, if nobody gives
// devices out, the processes that have it open.
func (m shown) held(a accel.Accelerator) string {
	var who []string
	for _, h := range m.holders[a.ID] {
		pod := plain(h.Namespace + "/" + h.Pod)
		if m.wide && h.Container != "" {
			pod += " (" + plain(h.Container) + ")"
		}
		if !slices.Contains(who, pod) {
			who = append(who, pod)
		}
	}
	if a.Switched != nil && len(who) == 0 {
		who = append(who, plain(a.Switched.For()))
	}
	if m.holders == nil && len(who) == 0 {
		who = m.openers[a.ID]
	}
	return strings.Join(who, ", ")
}

// openers are the processes that have devices open, by the device's ID. acceld's own programs are left out.
func (p *parts) openers(m accel.Machine) map[string][]string {
	if !p.Host.Live() {
		return nil // a copy of a machine has no processes
	}
	by := map[string]string{} // a device's ID, by its node
	var all []accel.DeviceNode
	for kind := range m.Have {
		for _, a := range accel.Flat(m.Have[kind].Accelerators) {
			for _, n := range a.Nodes {
				by[n.Path] = a.ID
				all = append(all, n)
			}
		}
	}
	out := map[string][]string{}
	found, _ := p.Host.Processes().Openers(p.ctx, all, nil) // without a list of processes, nobody is named
	for _, o := range found {
		text := fmt.Sprintf("%s (pid %d%s)", plain(o.Comm), o.PID, prefixed(", ", plain(cmp.Or(o.Container, o.Unit))))
		for _, node := range o.Nodes {
			if id := by[node]; !strings.HasPrefix(o.Comm, "acceld") && !slices.Contains(out[id], text) {
				out[id] = append(out[id], text)
			}
		}
	}
	return out
}

// heldBy returns whether somebody holds a device; nil if it is not known who holds what.
func (m shown) heldBy() func(id string) bool {
	if m.holders == nil {
		return nil
	}
	return func(id string) bool { return len(m.holders[id]) > 0 }
}

// linkText returns a PCI Express link as it is, and as it could be if that is more: "16 GT/s x8 of 32 GT/s x16"; empty
// if there is none, or it is not known.
func linkText(l accel.Link) string {
	of := func(speed float64, width int) string { return fmt.Sprintf("%g GT/s x%d", speed, width) }
	switch {
	case l.SpeedGTs <= 0 || l.Width <= 0:
		return ""
	case l.SpeedGTs < l.MaxSpeedGTs || l.Width < l.MaxWidth:
		return of(l.SpeedGTs, l.Width) + " of " + of(max(l.SpeedGTs, l.MaxSpeedGTs), max(l.Width, l.MaxWidth))
	}
	return of(l.SpeedGTs, l.Width)
}

// stepsDone lists the steps of a kind by what is done: "Driver ✓ 820ms, Self-test …, Containers –".
func stepsDone(i palette, served bool, st accel.Status, have accel.Have) string {
	if st.State == accel.Absent || st.State == accel.Ready && len(st.Took) == 0 {
		return ""
	}
	var parts []string
	passed := true
	for _, s := range accel.States() {
		if s.Done() == "" || !served && (s == accel.PluginMissing || s == accel.KubeletPending) {
			continue
		}
		text := s.Done() + " –"
		switch {
		case s == st.State:
			passed = false
			if text = i.wait(s.Done() + " …"); st.Blocked != nil {
				text = i.bad(s.Done() + " ✕")
			}
		case passed && s == accel.DriverUnproven && have.Driver.Unchecked:
			text = s.Done() + " unchecked"
		case passed:
			took := ""
			if d, ok := st.Took[s]; ok {
				took = " " + lasted(d)
			}
			text = i.good(s.Done()+" ✓") + took
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
