package host

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseUevent(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     Uevent
		ok       bool
	}{
		{
			"bind",
			"bind@/devices/pci0000:00/0000:00:04.0\x00ACTION=bind\x00DEVPATH=/devices/pci0000:00/0000:00:04.0\x00SUBSYSTEM=pci\x00DRIVER=edu\x00SEQNUM=12\x00",
			Uevent{"bind", "/devices/pci0000:00/0000:00:04.0", "pci", map[string]string{
				"ACTION": "bind", "DEVPATH": "/devices/pci0000:00/0000:00:04.0", "SUBSYSTEM": "pci", "DRIVER": "edu",
				"SEQNUM": "12",
			}},
			true,
		},
		{
			"value with an equals sign", "add@/module/edu\x00SUBSYSTEM=module\x00X=a=b\x00=nothing\x00",
			Uevent{"add", "/module/edu", "module", map[string]string{"SUBSYSTEM": "module", "X": "a=b"}},
			true,
		},
		{"udev", "libudev\x00\xfe\xed\xca\xfe", Uevent{}, false},
		{"empty", "", Uevent{}, false},
		{"no path", "add@", Uevent{}, false},
	} {
		got, ok := parseUevent([]byte(c.in))
		if diff := cmp.Diff(c.want, got); diff != "" || ok != c.ok {
			t.Errorf("%s: ok %t, want %t; -want +got\n%s", c.name, ok, c.ok, diff)
		}
	}
}

func TestUeventsOverflowAndForgery(t *testing.T) {
	kernel, process := &unix.SockaddrNetlink{}, &unix.SockaddrNetlink{Pid: 42}
	steps := []struct {
		text string
		from unix.Sockaddr
		err  error
	}{
		{"add@/a\x00", kernel, nil},
		{"add@/forged\x00", process, nil},
		{"", nil, unix.ENOBUFS},
		{"libudev\x00", kernel, nil},
		{"remove@/b\x00", kernel, nil},
		{"", nil, os.ErrClosed},
	}
	out := make(chan Uevent, len(steps))
	readUevents(t.Context(), out, func(b []byte) (int, unix.Sockaddr, error) {
		s := steps[0]
		steps = steps[1:]
		return copy(b, s.text), s.from, s.err
	})
	close(out)
	var got []string
	for e := range out {
		got = append(got, e.Action+e.DevPath)
	}
	if diff := cmp.Diff([]string{"add/a", "overflow", "remove/b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestUeventsEndWithTheirContext(t *testing.T) {
	h, err := New("/")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := h.Kernel().Uevents(ctx)
	must(t, err)
	cancel()
	for range events {
	}
}

// The kernel sends an event when a process requests one through sysfs. The test needs permission to write there.
func TestUeventsFromTheKernel(t *testing.T) {
	h, err := New("/")
	must(t, err)
	events, err := h.Kernel().Uevents(t.Context())
	must(t, err)
	if err := h.WriteAttribute("/sys/class/mem/null/uevent", "change"); err != nil {
		t.Skipf("no right to write /sys/class/mem/null/uevent: %v", err)
	}
	for {
		select {
		case e := <-events:
			if e.Action == "change" && e.Subsystem == "mem" && e.Vars["DEVNAME"] == "null" {
				return
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the kernel's event did not arrive")
		}
	}
}

func TestUeventsOfACopy(t *testing.T) {
	h, err := New(t.TempDir())
	must(t, err)
	if _, err := h.Kernel().Uevents(t.Context()); err == nil {
		t.Error("a copy of a machine has no kernel events")
	}
	if _, err := h.Kernel().Kmsg(t.Context()); err == nil {
		t.Error("a copy of a machine has no kernel log")
	}
}

func TestParseKmsg(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     KmsgRecord
		ok       bool
	}{
		{
			"device",
			"3,907,5140900,-;edu 0000:00:04.0: EDU-ERR 7: injected\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:04.0\n",
			KmsgRecord{
				Sequence: 907, Level: 3, Boot: 5140900 * time.Microsecond,
				Text:   "edu 0000:00:04.0: EDU-ERR 7: injected",
				Fields: map[string]string{"SUBSYSTEM": "pci", "DEVICE": "+pci:0000:00:04.0"},
			},
			true,
		},
		{
			"process, caller, escapes", `30,1,2,c,caller=T1;a;b\x0ac\x5c\xzz` + "\n",
			KmsgRecord{Sequence: 1, Level: 6, Facility: 3, Boot: 2000, Text: "a;b\nc\\\\xzz"},
			true,
		},
		{"no prefix", "hello\n", KmsgRecord{Text: "hello"}, false},
		{"garbage numbers", "x,y,z,-;hello\n", KmsgRecord{Text: "x,y,z,-;hello"}, false},
		{"empty", "", KmsgRecord{}, false},
	} {
		got, ok := parseKmsg([]byte(c.in))
		if diff := cmp.Diff(c.want, got); diff != "" || ok != c.ok {
			t.Errorf("%s: ok %t, want %t; -want +got\n%s", c.name, ok, c.ok, diff)
		}
	}
}

func TestKmsgCountsTheLost(t *testing.T) {
	steps := []any{"6,10,1,-;a\n", "nonsense\n", unix.EPIPE, "6,14,1,-;b\n", "6,15,1,-;c\n", os.ErrClosed}
	out := make(chan KmsgRecord, len(steps))
	readKmsg(t.Context(), out, func(b []byte) (int, error) {
		s := steps[0]
		steps = steps[1:]
		if err, ok := s.(error); ok {
			return 0, &os.PathError{Op: "read", Path: "/dev/kmsg", Err: err}
		}
		return copy(b, s.(string)), nil
	})
	close(out)
	lost := map[string]uint64{}
	for r := range out {
		lost[r.Text] = r.Lost
	}
	if diff := cmp.Diff(map[string]uint64{"a": 0, "nonsense": 0, "b": 3, "c": 0}, lost); diff != "" {
		t.Error(diff)
	}
}

func TestKmsgFromTheKernel(t *testing.T) {
	h, err := New("/")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	records, err := h.Kernel().Kmsg(ctx)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		t.Skipf("no right to read /dev/kmsg: %v", err)
	}
	must(t, err)
	const mark = "acceld test of the kernel log"
	must(t, h.WriteAttribute("/dev/kmsg", "<14>"+mark+"\n"))
	for r := range records {
		if strings.Contains(r.Text, mark) {
			if r.Facility != 1 || r.Level != 6 {
				t.Errorf("facility %d, level %d; want 1 and 6", r.Facility, r.Level)
			}
			cancel()
		}
	}
}

func FuzzParseUevent(f *testing.F) {
	f.Add([]byte("bind@/devices/x\x00ACTION=bind\x00SUBSYSTEM=pci\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, ok := parseUevent(b); ok && (e.Action == "" || !strings.HasPrefix(e.DevPath, "/")) {
			t.Errorf("an event without action or path: %+v", e)
		}
	})
}

func FuzzParseKmsg(f *testing.F) {
	f.Add([]byte("3,907,5140900,-;text \\x0a\n SUBSYSTEM=pci\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := parseKmsg(b); ok && (r.Level < 0 || r.Level > 7 || r.Boot < 0) {
			t.Errorf("impossible record %+v", r)
		}
	})
}
