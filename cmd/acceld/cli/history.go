package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/history"
)

func historyCommand(c *common) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use: "history [DEVICE]", Short: "Show what happened to devices on this host, by serial number",
		Long: `history lists the devices that were on this host, also those that are not any more, with the number of their faults. For
one device, named by its serial number or PCI address, it shows what happened: where it was, what was wrong, when it was
well again, and with which drivers it computed. The record stays over restarts, reboots and other slots. It needs
no agent.`,
		Args: takes(0, 1, "name at most one device"),
		RunE: c.opened(func(p *parts, args []string) error {
			all, bad := history.Read(p.Host, history.Dir(p.Config.StateDir))
			for _, why := range bad {
				fmt.Fprintln(p.errs, "acceld: left out:", plain(why))
			}
			if len(args) == 0 {
				return format.print(p.out, append([]history.Record{}, all...), func(s *tableWriter) {
					printHistories(s, all, p.Config.StateDir)
				})
			}
			i := slices.IndexFunc(all, func(r history.Record) bool { return r.ID == args[0] || r.Address == args[0] })
			if i < 0 {
				return exit{exitFailed, fmt.Errorf("no device %q is on record", args[0])}
			}
			return format.print(p.out, all[i], func(s *tableWriter) { printHistory(s, all[i]) })
		}),
	}
	format.flag(cmd, "text")
	return cmd
}

// printHistories lists devices.
func printHistories(s *tableWriter, all []history.Record, stateDir string) {
	if len(all) == 0 {
		s.line(0, fmt.Sprintf("no device is on record below %q", stateDir))
		return
	}
	rows := [][]string{{"DEVICE", "KIND", "MODEL", "ADDRESS", "LAST SEEN", "FAULTS"}}
	for _, r := range all {
		rows = append(rows, []string{
			plain(r.ID), plain(r.Kind), cmp.Or(plain(r.Model), "-"), plain(r.Address), stamp(r.Seen()), faults(r),
		})
	}
	s.table(rows)
}

// faults lists how often a device had which fault, the most frequent first.
func faults(r history.Record) string {
	if len(r.Faults) == 0 {
		return "0"
	}
	reasons := slices.SortedFunc(maps.Keys(r.Faults), func(a, b accel.Reason) int {
		return cmp.Or(r.Faults[b]-r.Faults[a], strings.Compare(string(a), string(b)))
	})
	var words []string
	for _, reason := range reasons {
		words = append(words, fmt.Sprintf("%d %s", r.Faults[reason], plain(string(reason))))
	}
	return strings.Join(words, ", ")
}

// printHistory shows one device, what happened last first.
func printHistory(s *tableWriter, r history.Record) {
	s.line(0, strings.Join([]string{plain(r.ID), plain(r.Kind), plain(r.Model)}, "  "))
	s.field(2, "address", plain(r.Address))
	s.field(2, "seen", "from "+stamp(r.First)+" to "+stamp(r.Seen()))
	s.field(2, "faults", faults(r))
	for _, e := range slices.Backward(r.Entries) {
		text := stamp(e.At) + "  " + s.happened(e)
		if e.Times > 1 {
			text += ", " + strconv.Itoa(e.Times) + " times, last " + stamp(e.Last)
		}
		if e.Address != r.Address {
			text += " (at " + plain(e.Address) + ")"
		}
		s.line(2, text)
	}
}

// happened says in words what an entry is about.
func (i palette) happened(e history.Entry) string {
	switch text := plain(e.Text()); e.What {
	case history.Well, history.Proven:
		return i.good(text)
	case history.Fault, history.Unclean:
		return i.bad(text)
	default:
		return text
	}
}

// stamp is a time for people, in UTC, to the minute.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }
