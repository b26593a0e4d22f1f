// Package power shows what is left of acceld's files when the power goes. In a guest of the test bed, on a disk whose
// write cache goes with the power (test/vm/nbd), the program test/power/cmd does what an agent does in its life, area
// by area, and tells the test after each step what has been promised. The test then makes the disk as a power cut at
// any moment would have left it, and the program, as the agent of the next boot, says what is wrong. The same again
// with every fsync of acceld left out shows what the fsyncs are for.
package power

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An Area is a part of what acceld keeps on the disk.
type Area interface {
	// Prepare makes what is there before, in the directory of an empty file system.
	Prepare(dir string) error
	// Work does what an agent does, and calls mark after each step with what holds from then on.
	Work(dir string, mark Mark) error
	// Check starts an agent after a power cut, and returns what is wrong.
	Check(dir string, c Cut) (Wrong, error)
}

// Mark notes that a step has been done; state is what its area promises from then on.
type Mark func(step string, state any) error

// Areas are all areas, by name.
func Areas() map[string]Area {
	return map[string]Area{"ledger": ledgers{}, "store": stores{}, "upgrade": upgrades{}, "claims": claims{}}
}

// Cut is a power cut that is to be judged: it came after the step that promised Before was done and before the one that
// promises After was.
type Cut struct {
	Number        int
	Area          string
	MountOptions  string
	Start         json.RawMessage // what the first step of the area promised
	Before, After json.RawMessage
}

// Verdict is what is wrong after a cut; nothing when all is right.
type Verdict struct {
	Number int
	Wrong  Wrong
	Took   time.Duration
}

// Wrong are sentences about what is wrong, by how bad it is.
type Wrong struct {
	// Lost is what had been promised and is as it was before.
	Lost []string
	// Torn are files in force that nobody has written so: empty, or a half.
	Torn []string
	// Broken is what the agent cannot mend.
	Broken []string
}

// All are all sentences.
func (w *Wrong) All() []string { return slices.Concat(w.Broken, w.Torn, w.Lost) }

// file notes a file that is not as it should be.
func (w *Wrong) file(name, is, was, wanted string) {
	text := fmt.Sprintf("%s is %q, it was %q and was to be %q", name, is, was, wanted)
	if strings.HasPrefix(is, empty) || strings.HasPrefix(was, "{") && is != "" && !json.Valid([]byte(is)) {
		w.Torn = append(w.Torn, text)
		return
	}
	w.Lost = append(w.Lost, text)
}

// broken notes what the agent cannot mend.
func (w *Wrong) broken(format string, args ...any) {
	w.Broken = append(w.Broken, fmt.Sprintf(format, args...))
}

// empty begins the description of an empty file; of another one its size is there.
const empty = "0 bytes"

// describe is what is remembered of a file's content.
func describe(content []byte) string {
	sum := sha256.Sum256(content)
	return fmt.Sprintf("%d bytes, %s", len(content), hex.EncodeToString(sum[:8]))
}

// Recorder does the work of one area while the test records.
type Recorder struct {
	Server, Device, Area, MountOptions string
	// NoSync leaves out every fsync of this process.
	NoSync bool
}

// place is where the disk is mounted.
const place = "/mnt/power"

// Run makes a file system, prepares it, and does the work.
func (r Recorder) Run() error {
	area, ok := Areas()[r.Area]
	if !ok {
		return fmt.Errorf("there is no area %q", r.Area)
	}
	// A journal of 4 MiB is short to look through; nothing is left to be made later, which would write by itself.
	out, err := exec.CommandContext(context.Background(), "mkfs.ext4", "-q", "-F", "-J", "size=4", "-E",
		"lazy_itable_init=0,lazy_journal_init=0", r.Device).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot make a file system: %w\n%s", err, out)
	}
	if err := mount(r.Device, ""); err != nil {
		return err
	}
	if err := errors.Join(area.Prepare(place), unmount()); err != nil {
		return err
	}
	if err := mount(r.Device, r.MountOptions); err != nil {
		return err
	}
	stop, err := neighbour()
	if err != nil {
		return err
	}
	defer stop()
	if r.NoSync {
		if err := leaveOutSyncs(); err != nil {
			return err
		}
	}
	if err := post(r.Server, "/begin", nil, nil); err != nil {
		return err
	}
	err = area.Work(place, func(step string, state any) error {
		return post(r.Server, "/mark", map[string]any{"step": step, "state": state}, nil)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", r.Area, err)
	}
	if err := post(r.Server, "/end", nil, nil); err != nil {
		return err
	}
	stop()
	return unmount()
}

// Judge asks the test for one cut after the other until there is none left.
func Judge(server, device string) error {
	areas := Areas()
	for {
		var c Cut
		if err := post(server, "/next", nil, &c); err != nil {
			return err
		}
		if c.Area == "" {
			return nil
		}
		began := time.Now()
		wrong, err := judge(areas[c.Area], device, c)
		if err != nil {
			return fmt.Errorf("cut %d: %w", c.Number, err)
		}
		if err := post(server, "/verdict", Verdict{c.Number, wrong, time.Since(began)}, nil); err != nil {
			return err
		}
	}
}

func judge(area Area, device string, c Cut) (Wrong, error) {
	failed := mount(device, c.MountOptions)
	if failed != nil { // a file system that is not there any more is what a cut may not do
		return Wrong{Broken: []string{"the file system: " + failed.Error()}}, nil //nolint:nilerr // it is the verdict
	}
	wrong, err := area.Check(place, c)
	return wrong, errors.Join(err, unmount())
}

func mount(device, options string) error {
	if err := os.MkdirAll(place, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(device, place, "ext4", unix.MS_NOATIME, options); err != nil {
		return fmt.Errorf("cannot mount with %q: %w", options, err)
	}
	return nil
}

// unmount takes the file system away, with what is mounted in it.
func unmount() error {
	for _, dir := range []string{"host/run", "host/dev"} {
		_ = unix.Unmount(filepath.Join(place, dir), 0) // only some have it
	}
	var err error
	for range 100 {
		runtime.GC() // closes the directories of hosts
		if err = unix.Unmount(place, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("cannot unmount: %w", err)
	}
	return nil
}

// volatile mounts what a boot empties.
func volatile(root string) error {
	for _, dir := range []string{"run", "dev"} {
		dir = filepath.Join(root, dir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755")); err != nil {
			return fmt.Errorf("cannot mount %q: %w", dir, err)
		}
	}
	return nil
}

// Role is the environment by which the program knows that it is a neighbour.
const Role = "ACCELD_TEST_NEIGHBOUR"

// neighbour starts another program that syncs a file of its own on the same disk over and over, as etcd and the journal
// do: so the file system writes what it has, also of those who do not sync, at any moment.
func neighbour() (stop func(), err error) {
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), Role+"="+filepath.Join(place, "neighbour"))
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start a neighbour: %w", err)
	}
	stopped := false
	return func() {
		if !stopped {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			stopped = true
		}
	}, nil
}

// Neighbour is what the neighbour does until it is killed.
func Neighbour(file string) error {
	f, err := os.Create(file)
	for n := 0; err == nil; n++ {
		_, err = f.WriteAt(fmt.Appendf(nil, "%4096d", n), 0)
		err = errors.Join(err, f.Sync())
		time.Sleep(30 * time.Millisecond)
	}
	return err
}

// post sends a value to the test and reads its answer.
func post(server, path string, value, into any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("cannot tell the test: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the test answered %s: %s", resp.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
