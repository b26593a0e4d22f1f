package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestFiles: the kernel says something about each open file of a node that somebody asks about.
func TestFiles(t *testing.T) {
	h := tempHost(t)
	process(t, h, 20, 1, "train", "0::/system.slice/a.service\n", "/dev/null", "/dev/edu1", "/dev/edu0", "/dev/edu1")
	for fd := 3; fd <= 6; fd++ {
		put(t, h, fmt.Sprintf("/proc/20/fdinfo/%d", fd), fmt.Sprintf("pos:\t%d\n", fd))
	}
	read := h.Processes().InfoReader()
	all, err := h.Processes().Openers(t.Context(), []accel.DeviceNode{{Path: "/dev/edu0"}, {Path: "/dev/edu1"}},
		func(node, file string) (string, error) {
			if node == "/dev/edu0" {
				return "", nil
			}
			return read(node, file)
		})
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	slices.SortFunc(all[0].Files, func(a, b OpenFile) int { return strings.Compare(a.Info, b.Info) })
	if fmt.Sprint(all[0].Files) != "[{/dev/edu1 pos:\t4 <nil>} {/dev/edu1 pos:\t6 <nil>}]" {
		t.Errorf("%+v", all[0].Files)
	}
	if text, err := read("/dev/edu0", "/proc/20/fdinfo/7"); text != "" || err != nil {
		t.Errorf("of a file that was closed: %q, %v", text, err)
	}
	put(t, h, "/proc/20/fdinfo/7", strings.Repeat("x", AttributeLimit+1))
	if _, err := read("/dev/edu0", "/proc/20/fdinfo/7"); err == nil {
		t.Error("a text without an end can be read")
	}
}

// TestManyFiles: of a process with very many open files, the others are known not to be read.
func TestManyFiles(t *testing.T) {
	h := tempHost(t)
	var open []string
	for range maxFiles + 3 {
		open = append(open, "/dev/edu0")
	}
	process(t, h, 20, 1, "train", "0::/\n", open...)
	all, err := h.Processes().Openers(t.Context(), []accel.DeviceNode{{Path: "/dev/edu0"}}, func(string, string) (string, error) {
		return "x", nil
	})
	if err != nil || len(all) != 1 || len(all[0].Files) != maxFiles+3 {
		t.Fatalf("%d processes, %v", len(all), err)
	}
	unread := 0
	for _, f := range all[0].Files {
		if f.Err != nil {
			unread++
		}
	}
	if unread != 3 {
		t.Errorf("%d files are not read", unread)
	}
}

// TestFilesLive reads what the kernel says of this process's own open file.
func TestFilesLive(t *testing.T) {
	h := holdsZero(t)
	nodes := []accel.DeviceNode{{Path: "/dev/zero", Major: 1, Minor: 5}}
	all, err := h.Processes().Openers(t.Context(), nodes, h.Processes().InfoReader())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.PID == os.Getpid() && len(o.Files) > 0 && strings.Contains(o.Files[0].Info, "flags:") {
			return
		}
	}
	t.Errorf("%+v", all)
}

// TestHangingFdinfo: a driver that does not answer is asked once, and the others are asked as before.
func TestHangingFdinfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var reads atomic.Int32
		read := infoReader(func(file string) (string, error) {
			if file == "ill" {
				reads.Add(1)
				<-hang
			}
			return file, nil
		})
		began := time.Now()
		for range 3 {
			if text, err := read("/dev/edu0", "ill"); text != "" || err == nil || !strings.Contains(err.Error(), "/dev/edu0") {
				t.Errorf("%q, %v", text, err)
			}
			if text, err := read("/dev/edu1", "well"); text != "well" || err != nil {
				t.Errorf("another: %q, %v", text, err)
			}
		}
		if waited := time.Since(began); waited != infoTimeout || reads.Load() != 1 {
			t.Errorf("waited %s for %d reads", waited, reads.Load())
		}
		close(hang)
		synctest.Wait()
		if text, err := read("/dev/edu0", "well again"); text != "well again" || err != nil {
			t.Errorf("afterwards: %q, %v", text, err)
		}
		failing := infoReader(func(string) (string, error) { panic("an error of ours") })
		if _, err := failing("/dev/edu0", "x"); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("a panic: %v", err)
		}
	})
}
