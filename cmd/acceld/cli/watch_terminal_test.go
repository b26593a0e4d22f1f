package cli

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/client"
)

// terminal is a pseudoterminal: screen shows what is written to slave.
type terminal struct {
	master, slave *os.File
	mu            sync.Mutex
	screen        *emulated
}

func newTerminal(t *testing.T, width, height int) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there are no pseudoterminals")
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(filepath.Join("/dev/pts", itoa(number)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{master: master, slave: slave, screen: newEmulated(width, height)}
	x.resize(t, width, height)
	t.Cleanup(func() { _, _ = slave.Close(), master.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			x.mu.Lock()
			_, _ = x.screen.Write(buf[:n])
			x.mu.Unlock()
		}
	}()
	return x
}

func itoa(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func (x *terminal) resize(t *testing.T, width, height int) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.screen.width, x.screen.height = width, height
	fresh := newEmulated(width, height)
	x.screen.rows, x.screen.x, x.screen.y, x.screen.full = fresh.rows, 0, 0, false
	if err := unix.IoctlSetWinsize(int(x.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{
		Row: uint16(height),
		Col: uint16(width),
	}); err != nil {
		t.Fatal(err)
	}
}

// until waits until want accepts the screen.
func (x *terminal) until(t *testing.T, what string, want func(text string, modes map[string]bool) bool) {
	t.Helper()
	text := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		x.mu.Lock()
		text = x.screen.String()
		yes := want(text, x.screen.modes)
		x.mu.Unlock()
		if yes {
			return
		}
	}
	t.Fatalf("%s: not on the screen\n%s", what, text)
}

// TestWatchOnTerminal: the page is kept up to date in place, with the progress of the work. It fits a terminal that
// becomes narrower and says when no agent answers. At the end the terminal is as it was, with the last page in it.
func TestWatchOnTerminal(t *testing.T) {
	x := newTerminal(t, 100, 30)
	socket := filepath.Join(t.TempDir(), "s")
	var mu sync.Mutex
	m, down := stood(accel.Status{
		State: accel.DriverMissing, Next: accel.StepDriver,
		Sentence: "the driver is not there",
	}, accel.Have{}).Machine, false
	var doing []accel.Progress
	change := func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		f()
		m.Taken = m.Taken.Add(time.Second)
	}
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{
		Listener: l,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Path == "/v1/progress" && doing != nil {
				_ = json.NewEncoder(w).Encode(doing)
				return
			}
			if down || r.URL.Path != "/v1/machine" {
				http.Error(w, "not now", http.StatusServiceUnavailable)
				return
			}
			w.Header().Set("Date", m.Taken.UTC().Format(http.TimeFormat))
			_ = json.NewEncoder(w).Encode(m)
		})},
	}
	server.Start()
	t.Cleanup(server.Close)
	a := &asked{Client: client.New(socket, filepath.Abs)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.watchScreen(ctx, x.slave, printMachine) }()
	shows := func(words ...string) func(string, map[string]bool) bool {
		return func(text string, modes map[string]bool) bool {
			for _, w := range words {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return modes["?1049"]
		}
	}
	x.until(t, "the first page", shows("driver-missing", "now      the driver is not there"))
	mu.Lock()
	doing = []accel.Progress{{
		Kind: "example-npu", Stage: accel.StagePull, Done: 1_000_000, Total: 4_000_000,
		Since: night(),
	}, {Kind: "other", Stage: accel.StageBuild}}
	mu.Unlock()
	x.until(t, "what is at work, without another machine", shows("driver-missing", "doing    pulling, 1.0 of 4.0 MB (25 %), "))
	mu.Lock()
	doing = nil
	mu.Unlock()
	change(func() {
		m = stood(accel.Status{State: accel.Ready},
			accel.Have{Accelerators: anyCards(accel.Health{State: accel.Healthy})}).Machine
	})
	x.until(t, "a newer one", func(text string, modes map[string]bool) bool {
		return shows("2 of 2 devices usable", "DEVICE ")(text, modes) && !strings.Contains(text, "driver-missing") &&
			!strings.Contains(text, "doing")
	})
	x.resize(t, 28, 24)
	x.until(t, "the same in fewer columns", func(text string, modes map[string]bool) bool {
		return shows("reads    42 °C")(text, modes) && !strings.Contains(text, "DEVICE ")
	})
	change(func() { down = true })
	x.until(t, "no answer", shows("out of date", "503", "0000:18:00.0  healthy"))
	change(func() { down = false })
	x.until(t, "an answer", func(text string, _ map[string]bool) bool { return !strings.Contains(text, "out of date") })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	x.until(t, "the last page", func(text string, modes map[string]bool) bool {
		return !modes["?1049"] && modes["?25"] && strings.Contains(text, "0000:20:00.0")
	})
	if x.screen.erased > 0 {
		t.Errorf("the screen was cleared %d times", x.screen.erased)
	}
}
