package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
)

func topCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "top [KIND|DEVICE...]", Short: "Show what the accelerators do, live",
		Long: `top asks the running agent what the devices do: how busy they are, their memory, power and temperature, and who holds
them, in one table for all kinds, devices that need attention first, then the busiest. On a terminal it keeps the table
up to date in its place until you interrupt it; in a pipe it prints the table once. What is not known is a dash. Readings
are as old as the agent's last sample (sampleEvery).`,
		RunE: c.opened(func(p *parts, words []string) error {
			a := p.agent()
			a.words = words
			if _, height := size(p.out); height > 0 {
				return a.watchScreen(p.ctx, p.out, printTop)
			}
			m, err := a.look(p.ctx)
			if err != nil {
				return err
			}
			format := outputFormat{value: "text"}
			return format.print(p.out, nil, func(s *tableWriter) { printTop(s, m) })
		}),
	}
}

// barWidth is how many columns a bar takes.
const barWidth = 10

// printTop writes the totals and one table of all devices.
func printTop(s *tableWriter, m shown) {
	if m.picked.Status == nil {
		m.picked = m.Machine
	}
	var t accel.Tally
	var all []accel.Accelerator
	for _, kind := range sorted(m.picked.Have) {
		all = append(all, m.picked.Have[kind].Accelerators...)
		t = t.Add(m.picked.Have[kind].Accelerators, m.heldBy())
	}
	s.line(0, m.Agent.Node+"  "+count(t.Total, "device")+prefixed(": ", t.String()))
	for _, p := range m.atWork {
		s.line(0, s.wait("working")+"  "+working(p, m.now))
	}
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b accel.Accelerator) int { return cmp.Compare(busiest(b), busiest(a)) })
	devices := accel.Flat(accel.SickFirst(all))
	for _, bars := range []bool{true, false} {
		rows := topRows(s, m, devices, bars)
		if lines, width := aligned(rows); s.width == 0 || width <= s.width || !bars {
			for _, line := range lines {
				s.b.WriteString(line + "\n")
			}
			return
		}
	}
}

// busiest is the utilization of a device or of its busiest partition; below zero if it is not known.
func busiest(a accel.Accelerator) float64 {
	most := -1.0
	for _, x := range accel.Current([]accel.Accelerator{a}) {
		most = max(most, x.Readings().Utilization.Or(-1))
	}
	return most
}

func topRows(s *tableWriter, m shown, devices []accel.Accelerator, bars bool) [][]string {
	rows := [][]string{{"DEVICE", "HEALTH", "BUSY", "MEMORY", "POWER", "TEMP", "HELD BY"}}
	for _, a := range devices {
		if a.FormerPartition() {
			continue
		}
		r := a.Readings()
		busy, memory := cmp.Or(r.UtilizationText(), "-"), cmp.Or(r.MemoryText(), "-")
		if bars {
			busy, memory = bar(r.Utilization)+" "+busy, bar(r.MemoryShare())+" "+memory
		}
		rows = append(rows, []string{
			deviceName(a), s.health(a), busy, memory, cmp.Or(r.PowerText(), "-"), cmp.Or(r.TemperatureText(), "-"),
			cmp.Or(m.held(a), "-"),
		})
	}
	return rows
}

// bar draws a share, 0 to 1; blank if it is not known.
func bar(share accel.Answer[float64]) string {
	if !share.Known {
		return strings.Repeat(" ", barWidth)
	}
	full := int(min(max(share.Value, 0), 1)*barWidth + 0.5)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}
