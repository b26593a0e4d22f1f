package cli

import (
	"cmp"

	"github.com/acceld/acceld/accel"
)

// printUse writes what each user uses of a device, as a table below its row, and as a block for each user if the table
// is too wide.
func printUse(s *tableWriter, m shown, a accel.Accelerator) {
	if a.Use == nil || !m.uses && !m.wide {
		return
	}
	if a.Use.Unknown != "" {
		s.field(4, "uses", "not known: "+plain(a.Use.Unknown))
		return
	}
	rows := [][]string{{"USED BY", "MEMORY", "BUSY", "ENGINE TIME"}}
	for _, u := range a.Use.Users {
		rows = append(rows, []string{
			plain(u.Who()), cmp.Or(u.MemoryText(), "-"), cmp.Or(u.BusyText(), "-"), cmp.Or(plain(u.EngineText()), "-"),
		})
	}
	const indent = 4
	switch lines, width := aligned(rows); {
	case len(a.Use.Users) == 0:
		s.field(indent, "uses", "nobody uses it")
	case s.width == 0 || m.wide || width+indent <= s.width:
		for _, line := range lines {
			s.b.WriteString("    " + line + "\n")
		}
		if rest := a.Use.Rest(); rest != "" {
			s.line(indent, rest)
		}
		return
	default:
		label := "uses"
		for _, u := range a.Use.Users {
			s.field(indent, label, filled(", ", plain(u.Who()), prefixed("memory ", u.MemoryText()),
				prefixed("busy ", u.BusyText()), plain(u.EngineText())))
			label = ""
		}
	}
	s.field(indent, "", a.Use.Rest())
}
