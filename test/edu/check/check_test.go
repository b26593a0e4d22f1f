package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// fake computes like the device does, until it is told to misbehave.
type fake struct {
	mu      sync.Mutex
	err     error
	corrupt bool
	max     uint32
	biggest int // the largest copy
	memory  int // what may be copied at once; 0 for all of a device's
}

func (f *fake) set(err error, corrupt bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.corrupt = err, corrupt
}

func (f *fake) Info() (info, error) {
	return info{"EDU-0000-01-00-0", "0000:01:00.0", f.max, cmp.Or(f.memory, dmaMax)}, nil
}

func (f *fake) Factorial(n uint32) (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > f.max {
		return 0, unix.EINVAL
	}
	result := uint32(1)
	for i := uint32(2); i <= n; i++ {
		result *= i
	}
	return result, f.err
}

func (f *fake) Copy(data []byte) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.biggest = max(f.biggest, len(data))
	if f.memory > 0 && len(data) > f.memory {
		return nil, unix.EINVAL
	}
	out := slices.Clone(data)
	if f.corrupt {
		out[len(out)-1] ^= 0x80
	}
	return out, f.err
}

// host is a machine with fakes for devices, by path.
type host map[string]*fake

func (h host) dev() fs.FS {
	dev := fstest.MapFS{"edux": {}, "edu": {}, "edu01": {}, "null": {}}
	for path := range maps.Keys(h) {
		dev[strings.TrimPrefix(path, "/dev/")] = &fstest.MapFile{}
	}
	return dev
}

func (h host) open(path string) (accelerator, error) {
	f, ok := h[path]
	if !ok {
		return nil, unix.ENOENT
	}
	return f, nil
}

func (h host) run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var o, e bytes.Buffer
	code = run(ctx, args, h.dev(), h.open, &o, &e)
	return code, o.String(), e.String()
}

func good() *fake { return &fake{max: 1 << 24} }

func TestRun(t *testing.T) {
	two := func() host { return host{"/dev/edu0": good(), "/dev/edu10": good()} }
	one := func(f *fake) host { return host{"/dev/edu0": f} }
	for _, tt := range []struct {
		name   string
		host   host
		args   []string
		code   int
		stdout string // its last line
		stderr string // its last line
	}{
		{"two devices", two(), nil, 0, "edu-check: PASS 2 device(s)", ""},
		{"one asked for", two(), []string{"-devices", "/dev/edu10"}, 0, "edu-check: PASS 1 device(s)", ""},
		{"as expected", two(), []string{"-expect", "2"}, 0, "edu-check: PASS 2 device(s)", ""},
		{"too many", two(), []string{"-expect", "1"}, 1, "", "edu-check: FAIL 2 device(s) visible, 1 expected"},
		{"none", host{}, nil, 1, "", "edu-check: FAIL no /dev/edu<N> visible"},
		{"none expected", host{}, []string{"-expect", "0"}, 0, "edu-check: PASS 0 device(s)", ""},
		{
			"absent", two(),
			[]string{"-devices", "/dev/edu7"},
			1, "",
			"edu-check: FAIL /dev/edu7: no such file or directory",
		},
		{
			"fails", one(&fake{max: 99, err: unix.EIO}), nil, 1, "/dev/edu0 serial EDU-0000-01-00-0 bdf 0000:01:00.0",
			"edu-check: FAIL /dev/edu0: input/output error",
		},
		{
			"gone", one(&fake{max: 99, err: unix.ENODEV}), nil, 3, "/dev/edu0 serial EDU-0000-01-00-0 bdf 0000:01:00.0",
			"device gone: /dev/edu0: no such device",
		},
		{"small", one(&fake{max: 12}), nil, 0, "edu-check: PASS 1 device(s)", ""},
		{"argument", two(), []string{"now"}, 2, "", `edu-check: unexpected argument "now"`},
		{"expects less than none", two(), []string{"-expect", "-2"}, 2, "", "edu-check: -expect -2 is negative"},
		{"holds backwards", two(), []string{"-hold", "-1s"}, 2, "", "edu-check: -hold -1s is negative"},
		{"never computes", two(), []string{"-every", "0s"}, 2, "", "edu-check: -every 0s is not positive"},
		{"a number too big", two(), []string{"-number", "4294967296"}, 2, "", "edu-check: -number 4294967296 is more than 32 bits"},
		{"copies nothing", two(), []string{"-copy", "0"}, 2, "", "edu-check: -copy 0 is not positive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := tt.host.run(t.Context(), tt.args...)
			if code != tt.code || lastLine(stdout) != tt.stdout || lastLine(stderr) != tt.stderr {
				t.Errorf("code %d, stdout %q, stderr %q\nwant %d, %q, %q", code, stdout, stderr, tt.code, tt.stdout,
					tt.stderr)
			}
		})
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return lines[len(lines)-1]
}

func TestCorruptionIsFound(t *testing.T) {
	f := good()
	f.corrupt = true
	code, _, stderr := host{"/dev/edu0": f}.run(t.Context())
	want := regexp.MustCompile(
		`^edu-check: FAIL /dev/edu0: wrong data after a round trip of 4095 bytes: checksum \w{8}, not \w{8}\n$`)
	if code != exitFail || !want.MatchString(stderr) {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
	if f.biggest != dmaMax {
		t.Errorf("copied %d bytes at most, want %d", f.biggest, dmaMax)
	}
}

func TestFindIsInNumericOrder(t *testing.T) {
	got, err := find(host{"/dev/edu10": nil, "/dev/edu2": nil, "/dev/edu0": nil}.dev())
	if want := []string{"/dev/edu0", "/dev/edu2", "/dev/edu10"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	got, err = find(host{
		"/dev/edu1p1": nil, "/dev/edu1": nil, "/dev/edu0": nil, "/dev/edu1p0": nil, "/dev/edu1p": nil,
		"/dev/edu1p0x": nil,
	}.dev())
	if want := []string{"/dev/edu0", "/dev/edu1p0", "/dev/edu1p1"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("of a divided device got %q, %v, want %q", got, err, want)
	}
}

// TestPartitionIsChecked: a partition is asked for no more than its part of the memory, and for all of it.
func TestPartitionIsChecked(t *testing.T) {
	f := good()
	f.memory = 1023
	code, stdout, stderr := host{"/dev/edu0p3": f}.run(t.Context(), "-expect", "1")
	if code != exitPass || f.biggest != 1023 || !strings.HasPrefix(stdout, "/dev/edu0p3 serial ") {
		t.Errorf("code %d, copied %d bytes at most, %q, %q", code, f.biggest, stdout, stderr)
	}
}

func TestHold(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error // of the device, after 3.05 s
		code  int
		took  time.Duration
		beats int
	}{
		{"to the end", nil, exitPass, 10 * time.Second, 10},
		{"until it is gone", unix.ENODEV, exitGone, 3100 * time.Millisecond, 3},
		{"until it fails", unix.EIO, exitFail, 3100 * time.Millisecond, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, start := good(), time.Now()
				time.AfterFunc(3050*time.Millisecond, func() { f.set(tt.err, false) })
				code, stdout, _ := host{"/dev/edu0": f}.run(t.Context(), "-hold", "10s")
				took := time.Since(start)
				if beats := strings.Count(stdout, "alive, "); code != tt.code || took != tt.took ||
					abs(beats-tt.beats) > 1 {
					t.Errorf("code %d after %v with %d beats, want %d, %v, %d", code, took, beats, tt.code, tt.took,
						tt.beats)
				}
			})
		})
	}
}

func abs(n int) int { return max(n, -n) }

func TestHoldEndsWithSIGTERM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		code, stdout, stderr := host{"/dev/edu0": good()}.run(ctx, "-hold", "1h")
		if code != exitPass || lastLine(stdout) != "edu-check: PASS 1 device(s)" {
			t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	})
}

func TestGoneNamesTheDevice(t *testing.T) {
	for _, errno := range []error{unix.ENODEV, unix.ENXIO} {
		if err := gone("/dev/edu3", errno); !errors.Is(err, errGone) ||
			err.Error() != "device gone: /dev/edu3: no such device" {
			t.Errorf("%v gave %v", errno, err)
		}
	}
}
