package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
)

// palette colours words on a terminal and leaves them plain elsewhere.
type palette bool

func (i palette) paint(code, s string) string {
	if !i {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (i palette) good(s string) string { return i.paint("32", s) }
func (i palette) bad(s string) string  { return i.paint("1;31", s) }
func (i palette) wait(s string) string { return i.paint("33", s) }
func (i palette) dim(s string) string  { return i.paint("2", s) }

// shown is the content of a status page.
type shown struct {
	accel.Machine
	// picked has the kinds and devices to show; without kinds, all are shown.
	picked accel.Machine
	// holders are the holders of each device, by its ID; nil if they are unknown.
	holders map[string][]exporter.Holder
	// openers are the processes that have a device open, by its ID, while nobody knows who was given what.
	openers map[string][]string
	// atWork is the progress of the work on drivers.
	atWork []accel.Progress
	// now is the agent's clock at its answer.
	now time.Time
	// wide shows every column of the devices, whatever the width.
	wide bool
	// uses shows what each user uses of a device.
	uses bool
}

// printMachine writes the page that an operator reads at night: for each kind its state, why, since when, and what
// happens next.
func printMachine(s *tableWriter, m shown) {
	if m.Taken.IsZero() {
		s.line(0, s.wait("starting")+"  the host has not been read yet")
		return
	}
	s.line(0, fmt.Sprintf("%s  kernel %s  acceld %s  up %s", m.Agent.Node, m.Facts.Kernel.Release, m.Agent.Version,
		age(m.now.Sub(m.Agent.Started))))
	if p := m.Want.Problem; p != nil {
		paint, note := s.bad, "; the previous configuration stays in force"
		if p.Reason == accel.ConfigPending {
			paint, note = s.wait, ""
		}
		s.line(0, paint(string(p.Reason))+"  "+plain(p.Message)+note)
	}
	for _, p := range m.Agent.Problems {
		s.line(0, s.bad(string(p.Reason))+"  "+p.Part+": "+plain(p.Message))
	}
	printMaintenance(s, m)
	if m.picked.Status == nil {
		m.picked = m.Machine
	}
	there := 0
	for _, kind := range sorted(m.picked.Status) {
		if m.Status[kind].State == accel.Absent && len(m.Have[kind].Accelerators) == 0 &&
			m.Status[kind].Blocked == nil {
			continue
		}
		there++
		s.b.WriteString("\n")
		printKind(s, m, kind)
	}
	if there == 0 {
		s.b.WriteString("\n")
		s.line(0, s.good("idle")+fmt.Sprintf("  no accelerator on this host (known kinds: %s)",
			strings.Join(sorted(m.Status), ", ")))
	}
	for _, p := range slices.Concat(m.Facts.Problems, m.Facts.Notes) {
		s.line(0, s.dim("note: "+plain(p)))
	}
}

// printKind writes one kind.
func printKind(s *tableWriter, m shown, kind string) {
	st, have := m.Status[kind], m.Have[kind]
	current := accel.Current(have.Accelerators)
	if st.State == "" { // the agent has only just started
		s.line(0, kind+"  "+s.wait("not looked at yet"))
		return
	}
	state := s.wait(string(st.State))
	switch {
	case st.Blocked != nil:
		state = s.bad(string(st.State) + ", blocked")
	case st.State == accel.Ready && accel.CountUsable(current) == len(current) &&
		accel.CountWithheld(current) == 0 && len(have.Warnings()) == 0:
		state = s.good(string(st.State))
	}
	s.line(0, kind+"  "+state+since("  ", m.now, st.Since))
	switch f := st.Blocked; {
	case f != nil:
		printFailure(s, 2, f.Problem)
		s.field(2, "next", fmt.Sprintf("the step %q is %s; %s%s", f.Step, retry(m.now, f), count(f.Attempts, "attempt"),
			prefixed(" since ", moment(m.now, f.Since))))
	default:
		s.field(2, "now", plain(presently(st, have)))
		s.field(2, "next", stepWords(st.Next))
	}
	for _, p := range m.atWork {
		if p.Kind == kind {
			p.Kind = "" // the heading shows it
			s.field(2, "doing", working(p, m.now))
		}
	}
	if u := have.Driver.Upgrade; u != nil {
		printUpgrade(s, m, u)
	}
	s.field(2, "model", models(have.Accelerators))
	if d := have.Driver; len(d.Modules) > 0 {
		s.field(2, "driver", driverLine(d))
		if d.UserSpace != nil {
			s.field(2, "libs", "from "+plain(d.UserSpace.Origin))
		}
		if len(d.Companions) > 0 {
			s.field(2, "daemons", daemons(s, d.Companions))
		}
	}
	for _, release := range sorted(have.Driver.Next) {
		word := s.good("the driver is ready for it")
		if p := have.Driver.Next[release].Problem; p != nil {
			word = s.bad(string(p.Reason)) + "  " + plain(p.Message)
		}
		s.field(2, "reboot", "into kernel "+release+": "+word)
	}
	if have.Runtime.Spec != "" && have.Runtime.Applied {
		s.field(2, "runtime", have.Runtime.Spec+prefixed(", hook ", have.Runtime.Hook))
	}
	printWarnings(s, st, have)
	if m.Want.Kubernetes && have.Plugin.Registered {
		def := m.Want.Kinds[kind]
		shared := ""
		switch least, most := replicas(def, have.Accelerators); {
		case least < most:
			shared = fmt.Sprintf(", each %d to %d times", least, most)
		case most > 1:
			shared = fmt.Sprintf(", each %d times", most)
		}
		total, names := offered(def, have.Accelerators)
		s.field(2, "kubelet", fmt.Sprintf("%d of %d allocatable as %s%s", have.Plugin.Allocatable.Or(0), total,
			strings.Join(names, ", "), shared))
	}
	if have.Monitoring.LabelProblem != "" {
		s.field(2, "labels", s.wait(plain(have.Monitoring.LabelProblem)))
	}
	s.field(2, "states", published(s.palette, st))
	s.field(2, "steps", stepsDone(s.palette, m.Want.Kubernetes, st, have))
	if n := len(current); n > 1 {
		s.field(2, "devices", accel.Tally{}.Add(have.Accelerators, m.heldBy()).String())
	}
	printDevices(s, m, m.picked.Have[kind])
}

// printWarnings writes what keeps nothing back and needs attention.
func printWarnings(s *tableWriter, st accel.Status, have accel.Have) {
	if p := have.Runtime.NotHonored; p != nil && st.Blocked == nil {
		printProblem(s, 2, "ignored", *p)
	}
	for _, p := range have.Warnings() {
		printProblem(s, 2, "warning", *p)
	}
}

// presently describes the state of a kind without what the page shows elsewhere: unhealthy devices, an upgrade.
func presently(st accel.Status, have accel.Have) string {
	if st.State == accel.Ready {
		return accel.UsableText(have.Accelerators)
	}
	text, _, _ := strings.Cut(st.Sentence, "; upgrade from ")
	return text
}

// stepWords returns what the agent does next; empty for nothing.
func stepWords(step accel.Step) string {
	return map[accel.Step]string{
		accel.StepDriver:   "load the right modules and bind the devices",
		accel.StepUpgrade:  "replace the current driver with the configured one",
		accel.StepProve:    "run the self-test on every device",
		accel.StepRuntime:  "write the CDI spec and, if configured, the hook",
		accel.StepRegister: "register with the kubelet",
		accel.StepAwait:    "wait until the kubelet has the same devices",
		accel.StepMonitor:  "collect metrics and write labels for the first time",
		accel.StepWithdraw: "withdraw what was published: no device is left",
	}[step]
}

// offered returns how many devices and partitions can be given out, and their resource names. A partitioned device
// itself does not count.
func offered(def *accel.Definition, accs []accel.Accelerator) (total int, names []string) {
	profiles := map[string]bool{}
	for _, u := range accel.Units(accs) {
		if !u.WithheldBy(accel.ByPartitions) && (u.Profile == "" || u.Present()) {
			total++
			profiles[u.Profile] = true
		}
	}
	for _, profile := range sorted(profiles) {
		names = append(names, def.OfferedAs(profile))
	}
	return total, names
}

// replicas returns how many times the devices and partitions are offered that can be given out: the fewest, and the
// most.
func replicas(def *accel.Definition, accs []accel.Accelerator) (least, most int) {
	for _, u := range accel.Units(accs) {
		if n := def.ReplicasOf(u); !u.WithheldBy(accel.ByPartitions) {
			least, most = min(cmp.Or(least, n), n), max(most, n)
		}
	}
	return least, most
}

// printFailure writes a problem: why, what to do and who must act, and what was tried.
func printFailure(s *tableWriter, indent int, p accel.Problem) {
	printProblem(s, indent, "why", p)
	s.fields(indent, "tried", p.Tried)
}

// printProblem writes a problem under a label, and what to do.
func printProblem(s *tableWriter, indent int, label string, p accel.Problem) {
	doc := p.Reason.Doc()
	s.field(indent, label, s.bad(string(p.Reason))+prefixed(": ", plain(p.Message)))
	s.field(indent, "do", plain(p.Remedy())+" ("+string(doc.Actor)+")")
}

// printUpgrade writes which driver should replace the one in use, why it has not yet, and what to do.
func printUpgrade(s *tableWriter, m shown, u *accel.Upgrade) {
	words := map[accel.UpgradePhase]string{
		accel.UpgradePending:   "pending, the old driver serves",
		accel.UpgradePreparing: "preparing the new driver, the old one serves",
		accel.UpgradeWaiting:   "the new driver is ready, the old one serves",
		accel.UpgradeDraining:  "waiting for the users of the old driver, new ones get no device",
		accel.UpgradeReplacing: "in progress",
	}
	s.field(2, "upgrade", fmt.Sprintf("%s -> %s for %s: %s", u.From, u.To, age(m.now.Sub(u.Since)),
		s.wait(words[u.Phase])))
	s.field(4, "users", users(u.Holders))
	if f := u.Failure; f != nil {
		printFailure(s, 4, f.Problem)
		s.field(4, "next", retry(m.now, f))
	}
}

func retry(now time.Time, f *accel.Failure) string {
	switch {
	case f.RetryAt.IsZero():
		return "tried again when the machine or the configuration changes"
	case !f.RetryAt.After(now):
		return "being tried again"
	}
	return "tried again in " + age(f.RetryAt.Sub(now))
}

// since returns "for 4m, since 03:00:00" after a gap; empty for the zero time.
func since(gap string, now, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return gap + "for " + age(now.Sub(at)) + ", since " + moment(now, at)
}

// moment returns the time of day, with the date if it may be another day's; empty for the zero time.
func moment(now, at time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case now.Sub(at) < 20*time.Hour:
		return at.Local().Format(time.TimeOnly)
	}
	return at.Local().Format("2006-01-02 15:04")
}

// daemons says which of a driver's companions run.
func daemons(s *tableWriter, all []accel.CompanionHave) string {
	var words []string
	for _, c := range all {
		colour := s.good
		if !c.Runs {
			colour = s.bad
		}
		words = append(words, plain(c.Name)+" "+colour(c.State()))
	}
	return strings.Join(words, ", ")
}

// models lists the models of devices, with how many there are of each if there are several devices.
func models(accs []accel.Accelerator) string {
	count := map[string]int{}
	for _, a := range accs {
		if a.Model != "" {
			count[a.Model]++
		}
	}
	var words []string
	for _, model := range slices.Sorted(maps.Keys(count)) {
		word := plain(model)
		if len(accs) > 1 {
			word = fmt.Sprintf("%d × %s", count[model], word)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func driverLine(d accel.DriverHave) string {
	var mods []string
	for _, m := range d.Modules {
		mods = append(mods, filled(" ", m.Name, m.Version))
	}
	proof := plain(cmp.Or(d.WhyUnchecked(), d.Proof))
	from := prefixed(", from ", d.Source)
	if d.Source == "loaded" {
		from = ", already loaded"
	}
	return strings.Join(mods, ", ") + from + prefixed("; ", proof)
}

func ageOf(now, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return age(now.Sub(at))
}

// numa returns a NUMA node; empty if the platform names none.
func numa(node int) string {
	if node < 0 {
		return ""
	}
	return strconv.Itoa(node)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// lasted formats how long a step took: "577ms", "1.9s", "12s", "4m".
func lasted(d time.Duration) string {
	if d >= time.Second && d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return age(d)
}

// age formats a duration as people say it: "350ms", "12s", "4m", "3h", "9d".
func age(d time.Duration) string {
	d = max(d, 0) // the agent's clock has whole seconds here, so a recent time may be ahead of it
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
