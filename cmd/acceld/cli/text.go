package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/acceld/acceld/accel"
)

// summary is one line about a machine: what systemctl status shows.
func summary(m accel.Machine) string {
	if m.Taken.IsZero() {
		return "starting: the host has not been read yet"
	}
	var parts []string
	for _, kind := range sorted(m.Status) {
		s := m.Status[kind]
		switch {
		case s.State == "":
			parts = append(parts, kind+": not looked at yet")
		case s.State != accel.Absent || len(m.Have[kind].Accelerators) > 0:
			parts = append(parts, fmt.Sprintf("%s: %s, %s", kind, s.State, s.Sentence))
		}
	}
	if len(parts) == 0 {
		return "idle: no accelerator on this host"
	}
	return strings.Join(parts, "; ")
}

// ink colours words on a terminal and leaves them alone elsewhere.
type ink bool

func (i ink) paint(code, s string) string {
	if !i {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (i ink) good(s string) string { return i.paint("32", s) }
func (i ink) bad(s string) string  { return i.paint("1;31", s) }
func (i ink) wait(s string) string { return i.paint("33", s) }
func (i ink) dim(s string) string  { return i.paint("2", s) }

// printMachine prints the page that an operator reads at night: what is wrong first, then the rest.
func printMachine(out io.Writer, m accel.Machine, colour bool) error {
	i := ink(colour)
	var b strings.Builder
	if m.Taken.IsZero() {
		return printPage(out, i.wait("starting")+"  the host has not been read yet\n")
	}
	fmt.Fprintf(&b, "%s  kernel %s  acceld %s  up %s\n", m.Agent.Node, m.Facts.Kernel.Release, m.Agent.Version, age(m.Taken.Sub(m.Agent.Started)))
	if p := m.Want.Problem; p != nil {
		if p.Reason == accel.ConfigPending {
			fmt.Fprintf(&b, "%s  %s\n", i.wait(string(p.Reason)), plain(p.Message))
		} else {
			fmt.Fprintf(&b, "%s  %s; the configuration before stays in force\n", i.bad(string(p.Reason)), plain(p.Message))
		}
	}
	shown := 0
	for _, kind := range sorted(m.Status) {
		if m.Status[kind].State == accel.Absent && len(m.Have[kind].Accelerators) == 0 {
			continue
		}
		shown++
		printKind(&b, i, m, kind)
	}
	if shown == 0 {
		fmt.Fprintf(&b, "\n%s  no accelerator on this host (known kinds: %s)\n", i.good("idle"), strings.Join(sorted(m.Status), ", "))
	}
	for _, p := range m.Facts.Problems {
		fmt.Fprintln(&b, i.dim("note: "+plain(p)))
	}
	return printPage(out, b.String())
}

// printKind prints one kind.
func printKind(b *strings.Builder, i ink, m accel.Machine, kind string) {
	s, have := m.Status[kind], m.Have[kind]
	state := i.wait(string(s.State))
	switch {
	case s.State == "": // the agent has only just begun
		fmt.Fprintf(b, "\n%s  %s\n", kind, i.wait("not looked at yet"))
		return
	case s.Blocked != nil:
		state = i.bad(string(s.State) + ", blocked")
	case s.State == accel.Ready && accel.CountUsable(have.Accelerators) == len(have.Accelerators):
		state = i.good(string(s.State))
	}
	fmt.Fprintf(b, "\n%s  %s  for %s\n", kind, state, age(m.Taken.Sub(s.Since)))
	if f := s.Blocked; f != nil {
		printBlocked(b, i, m, f)
	} else {
		fmt.Fprintf(b, "  %s\n", plain(s.Sentence))
	}
	if d := have.Driver; len(d.Modules) > 0 {
		fmt.Fprintf(b, "  driver   %s\n", driverLine(d))
	}
	if have.Driver.Upgrade != nil {
		printUpgrade(b, i, m, have.Driver.Upgrade)
	}
	for _, release := range sorted(have.Driver.Next) {
		word := i.good("the driver is ready for it")
		if p := have.Driver.Next[release].Problem; p != nil {
			word = i.bad(string(p.Reason)) + "  " + plain(p.Message)
		}
		fmt.Fprintf(b, "  reboot   into kernel %s: %s\n", release, word)
	}
	if have.Runtime.Spec != "" && have.Runtime.Applied {
		fmt.Fprintf(b, "  runtime  %s%s\n", have.Runtime.Spec, prefixed(", hook ", have.Runtime.Hook))
	}
	if m.Want.Kubernetes && have.Plugin.Registered {
		def := m.Want.Kinds[kind]
		shared := ""
		if n := def.Replicas(); n > 1 {
			shared = fmt.Sprintf(", each %d times", n)
		}
		total, names := offered(def, have.Accelerators)
		fmt.Fprintf(b, "  kubelet  %d of %d allocatable as %s%s\n", max(have.Plugin.Allocatable, 0), total, strings.Join(names, ", "), shared)
	}
	if have.Monitoring.LabelProblem != "" {
		fmt.Fprintf(b, "  labels   %s\n", i.wait(plain(have.Monitoring.LabelProblem)))
	}
	if len(s.Published) > 0 {
		fmt.Fprintf(b, "  states   %s\n", published(i, s))
	}
	printDevices(b, i, m, have)
}

// offered is how many devices and partitions there are to be given out, and the resources that they are. A device that is divided
// is none of them.
func offered(def *accel.Definition, accs []accel.Accelerator) (total int, names []string) {
	profiles := map[string]bool{}
	for _, u := range accel.Units(accs) {
		if u.Health.Reason != accel.DevicePartitioned && (u.Profile == "" || u.Present()) {
			total++
			profiles[u.Profile] = true
		}
	}
	for _, profile := range sorted(profiles) {
		names = append(names, def.OfferedAs(profile))
	}
	return total, names
}

// printBlocked prints why a kind is not ready, what was tried, and what to do.
func printBlocked(b *strings.Builder, i ink, m accel.Machine, f *accel.Failure) {
	doc := f.Reason.Doc()
	fmt.Fprintf(b, "  %s  %s\n", i.bad(string(f.Reason)), plain(f.Message))
	for _, t := range f.Tried {
		fmt.Fprintf(b, "    tried: %s\n", plain(t))
	}
	fmt.Fprintf(b, "    since %s, %s; %s\n", f.Since.Local().Format("15:04:05"), count(f.Attempts, "attempt"), retry(m, f))
	fmt.Fprintf(b, "    %s: %s\n", doc.Actor, doc.Remedy)
}

// printUpgrade prints the driver that is wanted instead of the one that serves, why it is not there yet, and what to do.
func printUpgrade(b *strings.Builder, i ink, m accel.Machine, u *accel.Upgrade) {
	words := map[accel.UpgradePhase]string{
		accel.UpgradePending:   "pending, the old driver serves",
		accel.UpgradePreparing: "the new driver is being got ready, the old one serves",
		accel.UpgradeWaiting:   "the new driver is ready, the old one serves",
		accel.UpgradeDraining:  "waits for the users of the old driver, new ones get no device",
		accel.UpgradeReplacing: "under way",
	}
	fmt.Fprintf(b, "  upgrade  %s -> %s for %s: %s\n", u.From, u.To, age(m.Taken.Sub(u.Since)), i.wait(words[u.Phase]))
	if f := u.Failure; f != nil {
		doc := f.Reason.Doc()
		fmt.Fprintf(b, "    %s  %s\n    %s; %s: %s\n", i.bad(string(f.Reason)), plain(f.Message), retry(m, f), doc.Actor, doc.Remedy)
		for _, t := range f.Tried {
			fmt.Fprintf(b, "    tried: %s\n", plain(t))
		}
	}
}

func retry(m accel.Machine, f *accel.Failure) string {
	if f.RetryAt.IsZero() {
		return "tried again when the machine or the configuration changes"
	}
	return "tried again in " + age(max(f.RetryAt.Sub(m.Taken), 0))
}

func driverLine(d accel.DriverHave) string {
	var mods []string
	for _, m := range d.Modules {
		mods = append(mods, strings.TrimSpace(m.Name+" "+m.Version))
	}
	return strings.Join(mods, ", ") + prefixed(", from ", d.Source) + prefixed("; ", plain(d.Proof))
}

// published lists the published states by their phase, the worst first.
func published(i ink, s accel.Status) string {
	var parts []string
	for _, phase := range []struct {
		phase accel.Phase
		paint func(string) string
	}{{accel.PhaseFailed, i.bad}, {accel.PhasePending, i.wait}, {accel.PhaseReady, i.good}} {
		var names []string
		for _, p := range []accel.Published{accel.DriverContainer, accel.RuntimeEnablement, accel.DevicePlugin, accel.DeviceMonitoring, accel.FeatureDiscovery} {
			if s.Published[p] == phase.phase {
				names = append(names, string(p))
			}
		}
		if len(names) > 0 {
			parts = append(parts, phase.paint(string(phase.phase))+": "+strings.Join(names, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// printDevices prints the table of devices.
func printDevices(b *strings.Builder, i ink, m accel.Machine, have accel.Have) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  DEVICE\tSERIAL\tNUMA\tNODES\tTEMP\tHEALTH")
	for _, a := range accel.Flat(have.Accelerators) {
		health := i.good(string(a.Health.State))
		if a.Health.State != accel.Healthy {
			colour := i.bad
			if a.Health.Usable() {
				colour = i.wait
			}
			health = colour(string(a.Health.State)) + prefixed(": ", plain(a.Health.Message)) + ", for " + age(m.Taken.Sub(a.Health.Since)) + prefixed("; ", a.Health.Action.Sentence())
		}
		temp := "-"
		if t, ok := a.Metrics["accelerator_temperature_celsius"]; ok {
			temp = fmt.Sprintf("%.0f °C", t)
		}
		name := a.ID
		if a.Profile != "" {
			name = "- " + a.ID // below its device
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", name, dash(plain(a.Serial)), numa(a), dash(nodes(a)), temp, health)
	}
	_ = w.Flush() // a strings.Builder does not fail
}

// numa is the device's node, "-" when the platform names none.
func numa(a accel.Accelerator) string {
	if a.NUMANode < 0 {
		return "-"
	}
	return strconv.Itoa(a.NUMANode)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// age is a duration as people say it: "350ms", "12s", "4m", "3h", "9d".
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
