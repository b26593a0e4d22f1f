package health

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// TestEvidenceIsShort: evidence from the kernel log is short enough for a sentence.
func TestEvidenceIsShort(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("ü", 4000), strings.Repeat("x", 301),
		"\xff" + strings.Repeat("y", 1000),
	} {
		if got := line(text); len(got) > 300+len("…") || !strings.HasSuffix(got, "…") || !utf8.ValidString(got) {
			t.Errorf("%d bytes of %d: %q", len(got), len(text), got)
		}
	}
	if got := line("  NVRM: it is well \n"); got != "NVRM: it is well" {
		t.Errorf("%q", got)
	}
}

// TestManyCodes: a driver that keeps logging new codes, or new devices, fills neither memory nor disk.
func TestManyCodes(t *testing.T) {
	b := newBench(t)
	for i := range 2 * maxCodes {
		b.says(fmt.Sprintf("NPU: err (%s): %d", one, 10_000+i), 0)
	}
	if n := len(b.e.devices[one].faults); n != maxCodes {
		t.Errorf("%d codes are kept", n)
	}
	for i := range 2 * maxDevices {
		b.e.note(finding{Device: fmt.Sprintf("%04x:01:00.0", i), Source: fromLog, Code: "79", State: accel.Unhealthy})
	}
	if n := len(b.e.memory.Findings); n != maxDevices {
		t.Errorf("%d findings are kept", n)
	}
}

// TestTakenBackOfOne: good news about one device does not apply to another.
func TestTakenBackOfOne(t *testing.T) {
	b := newBench(t)
	for i, id := range []string{one, two} {
		b.e.record(host.KmsgRecord{
			Sequence: uint64(800 + i), Boot: 1000 * time.Second, Text: "npu reset failed",
			Fields: map[string]string{"DEVICE": "+pci:" + id},
		})
	}
	b.e.record(host.KmsgRecord{
		Sequence: 802, Boot: 1000 * time.Second, Text: "npu reset succeeded",
		Fields: map[string]string{"DEVICE": "+pci:" + two},
	})
	if all := b.judged(); all[0].Health.State != accel.Unhealthy || all[1].Health.State != accel.Healthy {
		t.Errorf("%+v, %+v", all[0].Health, all[1].Health)
	}
}

// TestSlowErrors: correctable errors that come slowly are no fault, however many there are in the end.
func TestSlowErrors(t *testing.T) {
	b := newBench(t)
	for i := range 40 {
		b.m.SetAttribute(one, "aer_dev_correctable", fmt.Sprintf("TOTAL_ERR_COR %d", 5000+30*i))
		b.m.SetAttribute(one, "aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 0")
		b.m.SetAttribute(one, "aer_dev_fatal", "TOTAL_ERR_FATAL 0")
		b.want(fmt.Sprint("after ", i), accel.Healthy, "")
		b.now = b.now.Add(40 * time.Second)
	}
}
