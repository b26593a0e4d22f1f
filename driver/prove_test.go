package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/driver/proof"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/ko"
)

func TestProve(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	def := ko.Definition()
	def.Check.Write = "3628800" // a plain file returns what was written
	m.Write("/sys/bus/pci/devices/"+ko.Device+"/factorial", "")
	if got, problem := d.Prove(t.Context(), def, m.accs()); problem != nil || got.Sentence != def.Check.Sentence {
		t.Fatal(got, problem)
	}
	def.Check.Want = "7"
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckFailed ||
		!strings.Contains(problem.Message, `gave "3628800" instead of "7"`) {
		t.Fatal(problem)
	}
	def.Check.Want = "3628801"
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckFailed {
		t.Fatal("a digit is wrong:", problem)
	}
	def.Check.File = "nothing"
	if _, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckFailed {
		t.Fatal(problem)
	}
	sick := m.accs()
	sick[0].Health.State = accel.Unhealthy
	if _, problem := d.Prove(t.Context(), def, sick); problem == nil || problem.Reason != accel.DeviceUnhealthy {
		t.Fatal(problem)
	}
	def.Check = nil
	if sentence, problem := d.Prove(t.Context(), def, m.accs()); problem != nil || sentence.Sentence != "" {
		t.Fatal(sentence, problem)
	}
}

// TestProveCalledOff: a self-test that was called off says nothing about the device.
func TestProveCalledOff(t *testing.T) {
	m := newMachine(t)
	file := filepath.Join(m.Host.Root(), m.Host.Devices().Dir(ko.Device), "factorial")
	if err := errors.Join(os.RemoveAll(file), unix.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	def := ko.Definition()
	def.Check.Write = "10" // waits for a reader
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, problem := m.driver(Options{}).Prove(ctx, def, m.accs())
	if problem == nil || problem.Reason != accel.CheckNotRun {
		t.Error(problem)
	}
	reader, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close() // the self-test can end now
}

// TestProveEach: one device that computes wrongly is named, whatever the others return.
func TestProveEach(t *testing.T) {
	m := newMachine(t)
	m.AddDevice("0000:02:00.0")
	def := ko.Definition()
	def.Check.Write = ""
	m.Write(m.Host.Devices().Dir(ko.Device)+"/factorial", "3628800\n")
	m.Write(m.Host.Devices().Dir("0000:02:00.0")+"/factorial", "0\n")
	if _, problem := m.driver(Options{}).Prove(t.Context(), def, m.accs()); problem == nil ||
		problem.Reason != accel.CheckFailed || !strings.Contains(problem.Message, "0000:02:00.0") {
		t.Error(problem)
	}
}

// TestProveProgram: where the program cannot run, a check that is optional was not made, and another one has a reason.
func TestProveProgram(t *testing.T) {
	m := newMachine(t)
	def := ko.Definition()
	def.Check = &accel.Check{Program: &accel.CheckProgram{API: "x", Optional: true}}
	d := m.driver(Options{Beside: t.TempDir()})
	got, problem := d.Prove(t.Context(), def, m.accs())
	if problem != nil || got.Sentence != "" ||
		!strings.Contains(got.Skipped[ko.Device], "acceld-prove is not beside acceld") {
		t.Error(got, problem)
	}
	def.Check.Program.Optional = false
	if got, problem := d.Prove(t.Context(), def, m.accs()); problem == nil || problem.Reason != accel.CheckNotRun {
		t.Error(got, problem)
	}
}

// scripted has d prove devices by a program that says how by the device's name, and returns what it was asked since the
// last call: "device=UUID " each.
func scripted(t *testing.T, d *Driver) (asked func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := `#!/bin/sh
printf '%s=%s ' "$6" "$8" >>` + log + `
case $6$HOW in
wrong) fault=',"fault":{"kind":"wrong"}' ;;
busy) fault=',"fault":{"kind":"noLibrary","message":"no library"}' ;;
*unseen) fault=',"fault":{"kind":"noDevice"}' ;;
esac
printf '{"device":"%s","seed":%s,"name":"%s","items":1048576%s}\n' "$6" "${10}" "$8" "$fault"
`
	self, err := host.New("/") // for the shell
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "acceld-prove"), []byte(script), 0o755),
		os.WriteFile(log, nil, 0o666), os.Chmod(log, 0o666), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err) // it is a user of its own that writes
	}
	d.prover = proof.New(proof.Options{Host: self, Operations: &d.operations, Beside: dir})
	return func() string {
		text, err := os.ReadFile(log)
		if err := errors.Join(err, os.Truncate(log, 0)); err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

// parts are partitions, whose state is their name if that is one.
func parts(names string) (out []accel.Accelerator) {
	for name := range strings.FieldsSeq(names) {
		part := accel.Accelerator{ID: name, UUID: "u-" + name, Parent: ko.Device}
		if name == "gone" || name == "unhealthy" {
			part.Health.State = accel.HealthState(name)
		}
		out = append(out, part)
	}
	return out
}

// TestProveParts: of a device that is divided, each healthy partition computes. After a reset or with another driver it
// is whole, or not seen.
func TestProveParts(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	asked := scripted(t, d)
	const whole, alone = ko.Device + "= ", ko.Device + "=u "
	for _, c := range []struct {
		api, parts string
		fresh      bool
		did        string
		skips, bad string
	}{
		{"cuda", "a b", false, "a=u-a b=u-b ", "", ""},
		{"cuda", "a wrong b", false, "a=u-a wrong=u-wrong ", "", `"wrong" computed wrongly`},
		{"cuda", "busy b", false, "busy=u-busy b=u-b ", "busy: no library", ""},
		{"cuda", "busy wrong", false, "busy=u-busy wrong=u-wrong ", "", `"wrong" computed wrongly`},
		{"cuda", "gone unhealthy b", false, "b=u-b ", "", ""},
		{"cuda", "gone unhealthy", false, "", "none of its partitions is healthy", ""},
		{"cuda", "gone", false, whole, "", ""},
		{"cuda", "a", true, whole, "", ""},
		{"cuda unseen", "a", true, whole + alone, "it was divided, and the library does not see it before it is again", ""},
		{"cuda unseen", "", true, whole + alone, "", "is not seen"},
		{"opencl", "a", false, whole, "", ""},
		{"opencl unseen", "a", true, whole, "", "is not seen"},
	} {
		def, accs := ko.Definition(), m.accs()
		api, env, _ := strings.Cut(c.api, " ")
		def.Check = &accel.Check{Program: &accel.CheckProgram{API: api, Env: []string{"HOW=" + env}, Optional: api == "cuda"}}
		accs[0].UUID, accs[0].Partitions = "u", parts(c.parts)
		got, problem := selfTest{d, c.fresh}.run(t.Context(), def, accs)
		if problem == nil {
			problem = &accel.Problem{}
		}
		did := asked()
		if did != c.did || got.Skipped[ko.Device] != c.skips || (problem.Message == "") != (c.bad == "") ||
			!strings.Contains(problem.Message, c.bad) {
			t.Errorf("%q, %q: %q, %+v, %v", c.api, c.parts, did, got, problem)
		}
	}
}

// TestPartsGone: an upgrade and a reset take the partitions away, so that only the device can be tested.
func TestPartsGone(t *testing.T) {
	cuda := &accel.Check{Program: &accel.CheckProgram{API: "cuda"}}
	m, d := serving(t)
	asked := scripted(t, d)
	def, accs := wants("2.0.0"), m.accs()
	def.Check, accs[0].Partitions = cuda, parts("wrong")
	if have, problem := d.Upgrade(t.Context(), def, m.Facts(), accs); problem != nil || have.Version != "2.0.0" {
		t.Errorf("%+v %v", have, problem)
	}
	if did := asked(); did != ko.Device+"= " {
		t.Errorf("after the upgrade %q was tested", did)
	}
	_, d, def = resettable(t)
	asked = scripted(t, d)
	def.Check = cuda
	targets := targets(def, ko.Device)
	targets[0].Device.Partitions = parts("wrong")
	if problem := d.Reset(t.Context(), slots(), targets, atOnce); problem != nil {
		t.Error(problem)
	}
	if did := asked(); did != ko.Device+"= " {
		t.Errorf("after the reset %q was tested", did)
	}
}

// TestProveTogether: what failed decides before what did not run; what was skipped is neither.
func TestProveTogether(t *testing.T) {
	failed := func(r accel.Reason, text string) proof.Outcome {
		return proof.Outcome{Problem: accel.Problemf(r, "%s", text)}
	}
	good := proof.Outcome{Line: accel.ProofLine{Name: "a card", Driver: "1.2", Items: 7, Milliseconds: 34}}
	skipped := proof.Outcome{Skipped: "it is in use"}
	notRun, wrong := failed(accel.CheckNotRun, "a service does not run"), failed(accel.CheckFailed, "it is wrong")
	check := &accel.Check{Program: &accel.CheckProgram{API: "x"}}
	const computed = "7 random numbers computed through x: a card, driver 1.2, 34 ms"
	for name, c := range map[string]struct {
		outcomes        []proof.Outcome
		sentence, skips string
		reason          accel.Reason
		message         string
	}{
		"all computed":     {[]proof.Outcome{good, good}, computed, "", "", ""},
		"one was skipped":  {[]proof.Outcome{skipped, good}, computed, "it is in use", "", ""},
		"nothing was made": {[]proof.Outcome{skipped}, "", "it is in use", "", ""},
		"one did not run":  {[]proof.Outcome{good, notRun}, "", "", accel.CheckNotRun, "a service does not run"},
		"one is wrong": {
			[]proof.Outcome{notRun, wrong, skipped}, "", "", accel.CheckFailed, "a service does not run; it is wrong",
		},
		"the first is": {
			[]proof.Outcome{wrong, notRun}, "", "", accel.CheckFailed, "it is wrong; a service does not run",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, problem := together(check, []string{"0", "1", "2"}, c.outcomes)
			if problem == nil {
				problem = &accel.Problem{}
			}
			if got.Sentence != c.sentence || got.Skipped["0"] != c.skips || problem.Reason != c.reason ||
				problem.Message != c.message {
				t.Errorf("%+v %v", got, problem)
			}
		})
	}
	check.Sentence = "it computes"
	if got, _ := together(check, []string{"0"}, []proof.Outcome{good}); got.Sentence !=
		"it computes: a card, driver 1.2, 34 ms" {
		t.Error(got)
	}
}
