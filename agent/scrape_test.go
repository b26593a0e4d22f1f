package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
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
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/exporter"
)

// touched returns the entries below dir that were opened or read since it was last called.
func touched(t *testing.T, dir string) func() []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	names := map[int32]string{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		watch, err := unix.InotifyAddWatch(fd, path,
			unix.IN_OPEN|unix.IN_ACCESS|unix.IN_CREATE|unix.IN_DELETE|unix.IN_MODIFY)
		names[int32(watch)] = path
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() []string {
		var out []string
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return out
			}
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < n; {
				size := int(binary.NativeEndian.Uint32(buf[at+12:]))
				name := string(bytes.TrimRight(buf[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+size], "\x00"))
				out = append(out, names[int32(binary.NativeEndian.Uint32(buf[at:]))]+"/"+name)
				at += unix.SizeofInotifyEvent + size
			}
		}
	}
}

// TestScrapeTouchesNothing: however many clients scrape, nothing on the host is opened and no probe runs. A kubelet
// that accepts a request and never answers delays no scrape.
func TestScrapeTouchesNothing(t *testing.T) {
	root, err := os.MkdirTemp("", "sc") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	for name, text := range map[string]string{
		"sys/bus/pci/devices/0000:01:00.0/temperature": "41000\n", "sys/bus/pci/devices/0000:01:00.0/health": "ok\n",
		"var/lib/kubelet/pods/x/y": "", "etc/acceld/definitions.d/x": "",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(root, "var/lib/kubelet/pod-resources/kubelet.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	o := options(root, filepath.Join(t.TempDir(), "config.yaml"))
	save(t, o.ConfigFile, "logLevel: error\nendpoint: {compatible: [dcgm, gpu-operator]}\n")
	opened, problem := Open(o)
	if problem != nil {
		t.Fatal(problem)
	}
	a := reloading(t, o, opened)
	a.plugins.bySlot = map[string]*serving{"x": {devices: deviceplugin.NewKind(deviceplugin.Config{
		Resource: "example.com/x", Dir: filepath.Join(root, "var/lib/kubelet/device-plugins"),
		Definition: &accel.Definition{Kind: "example-x", Resource: "example.com/x"},
	})}}
	go func() { _ = a.holdings.Run(t.Context()) }()
	<-a.holdings.Ready()
	<-a.around.surveyed
	for a.loop.Machine().Taken.IsZero() { // the loop's first pass reads too
		time.Sleep(10 * time.Millisecond)
	}
	exposed := a.exposed()
	m := accel.Machine{
		Taken: time.Now(),
		Have:  map[string]accel.Have{"qemu-edu": {Accelerators: []accel.Accelerator{{ID: "0000:01:00.0"}}}},
	}
	// each scrape shows something new
	exposed.Machine = func() accel.Machine { m.Taken = m.Taken.Add(time.Nanosecond); return m }
	h := exporter.New(exposed).Handler()
	changed := touched(t, root)
	changed() // forget what setting up the watch touched
	var wg sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for range 100 {
		wg.Go(func() {
			for _, path := range []string{"/metrics", "/metrics/dcgm", "/metrics/gpu-operator"} {
				mu.Lock() // the machine above is not safe for concurrent use
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil))
				mu.Unlock()
				if w.Code != http.StatusOK {
					t.Errorf("%s: %d", path, w.Code)
				}
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a hundred scrapes of all pages took %v", took)
	}
	for _, name := range changed() {
		if !strings.Contains(name, "/var/lib/kubelet/") { // the follower reads there, not the scrape
			t.Errorf("a scrape has touched %s", name)
		}
	}
	if _, err := os.ReadFile(filepath.Join(root, "sys/bus/pci/devices/0000:01:00.0/health")); err != nil {
		t.Fatal(err)
	}
	if len(changed()) == 0 {
		t.Error("nothing that is touched is seen")
	}
}
