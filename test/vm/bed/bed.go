// Package bed is the core of the test bed: it prepares everything a guest needs, starts guests and nodes, and takes
// them down again. It returns errors and knows no tests, so that the demo can use it as well. One process at a time
// holds the bed of a cache folder; another one waits.
package bed

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/disk"
	"github.com/acceld/acceld/test/vm/image"
	"github.com/acceld/acceld/test/vm/initramfs"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/process"
	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/test/vm/qemu"
	"github.com/acceld/acceld/test/vm/seed"
	"github.com/acceld/acceld/test/vm/supply"
)

// Bed is a prepared test bed.
type Bed struct {
	config   supply.Config
	cache    cache.Dir
	seat     cache.Dir
	log      *progress.Log
	starter  *process.Starter
	supply   supply.Supply
	programs string // the image of the second disk
	accel    qemu.Accel
	keys     keys
	ports    ports
	registry *image.Registry
	dir      string // of this run, removed by Close
	unlock   func()
}

// keys are the SSH identities of both sides.
type keys struct {
	client, host             ssh.Signer
	hostPEM, authorized, dir string
}

// Open prepares the bed: it installs, builds and makes what is missing, says so on out, and takes the bed for this
// process. The first time takes minutes, later times a second.
func Open(ctx context.Context, out io.Writer, c supply.Config) (_ *Bed, err error) {
	return OpenLog(ctx, progress.New(out), c)
}

// OpenLog is Open for a caller that tells of its own work in the same log.
func OpenLog(ctx context.Context, log *progress.Log, c supply.Config) (_ *Bed, err error) {
	b := &Bed{log: log, config: c}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if b.cache, err = cache.Open(b.log.Say); err != nil {
		return nil, err
	}
	if b.supply, err = supply.Make(ctx, b.log, b.config); err != nil {
		return nil, err
	}
	if err := b.take(ctx, seats()...); err != nil {
		return nil, err
	}
	if err := b.makePrograms(ctx); err != nil {
		return nil, err
	}
	if err := b.openIdentity(ctx); err != nil {
		return nil, err
	}
	if err := b.probe(ctx); err != nil {
		return nil, err
	}
	return b, b.openRegistry(ctx)
}

// seats are how many beds there are in a cache folder at a time, of one process or several: each has a seat with ports,
// guests and snapshots of its own, the parts are shared. A seat takes up to 4 GiB of memory, and three guests at once
// are all that two processors can carry.
func seats() []string { return []string{"seat-1", "seat-2", "seat-3"} }

// take locks a seat and ends what an earlier holder left behind.
func (b *Bed) take(ctx context.Context, seats ...string) error {
	name, unlock, err := b.cache.Lock(ctx, seats...)
	if err != nil {
		return err
	}
	b.unlock = unlock
	if b.seat, err = b.cache.Sub(name); err != nil {
		return err
	}
	if b.starter, err = process.NewStarter(b.seat.Path("processes")); err != nil {
		return err
	}
	ended, err := b.starter.Sweep()
	if err != nil {
		return err
	}
	if len(ended) > 0 {
		b.log.Say("ended what an earlier run left behind: %s", strings.Join(ended, ", "))
	}
	runs := b.seat.Path("run")
	if err := os.RemoveAll(runs); err != nil {
		return fmt.Errorf("cannot clear the folder of earlier runs: %w", err)
	}
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of this run: %w", err)
	}
	b.dir = runs
	return nil
}

// Close gives the bed back. Guests must be stopped before.
func (b *Bed) Close() {
	if b.registry != nil {
		b.registry.Close()
	}
	if b.dir != "" {
		os.RemoveAll(b.dir)
	}
	if b.unlock != nil {
		b.unlock()
	}
}

// Program is the path of a built program, such as "kubectl".
func (b *Bed) Program(name string) string { return b.supply.Parts.Path(name) }

// Build builds a part that the bed's configuration leaves for later. Nothing else may use the bed's programs meanwhile
// but a node that starts; use makes the programs known.
func (b *Bed) Build(ctx context.Context, name string) (use func(), err error) {
	set, err := parts.Builder{Idle: b.config.Idle}.Build(ctx, b.cache, b.log, name)
	return func() { b.supply.Parts = b.supply.Parts.With(set) }, err
}

// Failures is the folder that keeps what failed tests leave.
func (b *Bed) Failures() string { return b.cache.Path("failures") }

// guestPrograms are what the second disk holds, beside guestd; of an engine that a guest does not have, none is in its
// PATH.
func (b *Bed) guestPrograms(engines ...seed.Engine) []string {
	list := []string{"runc"}
	if !b.config.NoCluster {
		list = append(list, "kubelet", "pause")
	}
	for _, e := range engines {
		list = append(list, e.Programs()...)
	}
	return list
}

func (b *Bed) makePrograms(ctx context.Context) error {
	programs := map[string]string{}
	for _, name := range b.guestPrograms(b.config.Runtimes()...) {
		programs[name] = b.supply.Parts.Path(name)
	}
	guestd, err := b.buildGuestd(ctx)
	if err != nil {
		return err
	}
	programs["guestd"] = guestd
	b.programs, err = disk.Programs(ctx, b.cache, programs)
	return err
}

// buildGuestd builds it every time, which the Go build cache makes quick, and names it by its content.
func (b *Bed) buildGuestd(ctx context.Context) (string, error) {
	tmp := filepath.Join(b.dir, "guestd")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", tmp,
		"github.com/acceld/acceld/test/vm/cmd/guestd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build guestd: %w\n%s", err, output)
	}
	key := cache.NewKey("guestd").AddFile(tmp)
	if err := key.Err(); err != nil {
		return "", err
	}
	dir, err := b.cache.Entry(ctx, "guestd", key, func(dir string) error {
		return os.Rename(tmp, filepath.Join(dir, "guestd"))
	})
	return filepath.Join(dir, "guestd"), err
}

// openIdentity makes, once for a cache folder, the keys and certificates of both sides. They outlive a run because
// snapshots hold them.
func (b *Bed) openIdentity(ctx context.Context) error {
	dir, err := b.cache.Entry(ctx, "identity", cache.NewKey("3"), func(tmp string) error {
		for _, name := range []string{"client", "host"} {
			if err := makeKey(filepath.Join(tmp, name)); err != nil {
				return err
			}
		}
		return cluster.MakePKI(tmp)
	})
	if err != nil {
		return err
	}
	b.keys.dir = dir
	if b.keys.client, _, err = readKey(filepath.Join(dir, "client")); err != nil {
		return err
	}
	if b.keys.host, b.keys.hostPEM, err = readKey(filepath.Join(dir, "host")); err != nil {
		return err
	}
	b.keys.authorized = string(ssh.MarshalAuthorizedKey(b.keys.client.PublicKey()))
	return b.ports.open(b.seat.Path("ports.json"))
}

// ClientKey is the file of the key that opens every guest, for a person's ssh.
func (b *Bed) ClientKey() string { return filepath.Join(b.keys.dir, "client") }

func makeKey(path string) error {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("cannot make a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "acceld test bed")
	if err != nil {
		return fmt.Errorf("cannot encode a key: %w", err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		return fmt.Errorf("cannot write a key: %w", err)
	}
	return nil
}

func readKey(path string) (ssh.Signer, string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, "", fmt.Errorf("cannot read a key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, "", fmt.Errorf("cannot parse key %q: %w", path, err)
	}
	return signer, string(text), nil
}

// probe asks once per boot of this machine how processors can run.
func (b *Bed) probe(ctx context.Context) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("cannot identify this boot: %w", err)
	}
	if b.accel.QEMU, err = qemu.Version(ctx); err != nil {
		return err
	}
	kernel := b.Kernels()[0]
	dir, err := b.cache.Entry(ctx, "accel", cache.NewKey("2", b.accel.QEMU, string(boot), kernel),
		func(tmp string) error {
			initrd, err := b.writeInitrd(tmp, Options{Kernel: kernel}, nil)
			if err != nil {
				return err
			}
			accel := qemu.Probe(ctx, b.supply.Debian.Kernel(kernel), initrd)
			b.log.Say("processors are run by %s", accel.Name)
			return os.WriteFile(filepath.Join(tmp, "name"), []byte(accel.Name+" "+accel.CPU), 0o644)
		})
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "name"))
	if err != nil {
		return fmt.Errorf("cannot read how processors are run: %w", err)
	}
	b.accel.Name, b.accel.CPU, _ = strings.Cut(string(text), " ")
	return nil
}

// writeInitrd writes the initramfs of a kernel with the files to lay over the guest's disk. Of the options it takes the
// kernel.
func (b *Bed) writeInitrd(dir string, o Options, overlay map[string]initramfs.File) (string, error) {
	script, err := seed.Init()
	if err != nil {
		return "", err
	}
	busybox, err := os.ReadFile(b.supply.Debian.Busybox())
	if err != nil {
		return "", fmt.Errorf("cannot read busybox: %w", err)
	}
	files := map[string]initramfs.File{
		"init":        {Mode: 0o755, Content: script},
		"bin/busybox": {Mode: 0o755, Content: busybox},
		"bin/sh":      {Link: "busybox"},
		"seed":        {Mode: 0o755, Dir: true},
	}
	modules, err := b.bootModules(o)
	if err != nil {
		return "", err
	}
	for _, m := range modules {
		content, err := os.ReadFile(m)
		if err != nil {
			return "", fmt.Errorf("cannot read a boot module: %w", err)
		}
		files["modules/"+filepath.Base(m)] = initramfs.File{Mode: 0o644, Content: content}
	}
	for path, f := range overlay {
		files["seed"+path] = f
	}
	var archive bytes.Buffer
	if err := initramfs.Write(&archive, files); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "initrd-"+o.Kernel)
	if err := os.WriteFile(out, archive.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("cannot write initramfs: %w", err)
	}
	return out, nil
}

// openRegistry serves the images that every node needs.
func (b *Bed) openRegistry(ctx context.Context) (err error) {
	if b.registry, err = image.Serve(b.ports.Registry); err != nil {
		return err
	}
	if err := b.pushPause(ctx); err != nil {
		return err
	}
	files, err := b.busyboxFiles()
	if err != nil {
		return err
	}
	return b.registry.Push(ctx, "bed/busybox:1", image.Spec{Files: files})
}

// pushPause serves the image of which every pod has a container.
func (b *Bed) pushPause(ctx context.Context) error {
	if b.config.NoCluster {
		return nil
	}
	pause, err := os.ReadFile(b.supply.Parts.Path("pause"))
	if err != nil {
		return fmt.Errorf("cannot read pause: %w", err)
	}
	_, err = b.PushProgram(ctx, "bed/pause:1", "/pause", pause)
	return err
}

// Registry is the address of the bed's registry on this machine.
func (b *Bed) Registry() string { return b.registry.Address() }

// PushProgram stores an image that holds one static program and nothing else, and returns the name by which a guest
// pulls it.
func (b *Bed) PushProgram(ctx context.Context, name, path string, program []byte) (string, error) {
	err := b.registry.Push(ctx, name, image.Spec{
		Files: map[string]image.File{path: {Mode: 0o755, Content: program}}, Entrypoint: []string{path},
	})
	return b.GuestRegistry() + "/" + name, err
}

// PushLayout stores the image of an OCI layout in a directory.
func (b *Bed) PushLayout(ctx context.Context, name, dir string) error {
	return b.registry.PushLayout(ctx, name, dir)
}

// busyboxFiles is a small userland, the base of the images that a scenario makes.
func (b *Bed) busyboxFiles() (map[string]image.File, error) {
	content, err := os.ReadFile(b.supply.Debian.Busybox())
	if err != nil {
		return nil, fmt.Errorf("cannot read busybox: %w", err)
	}
	files := map[string]image.File{"/bin/busybox": {Mode: 0o755, Content: content}}
	for _, applet := range strings.Fields(
		"sh cat ls sleep echo env id mount umount mkdir rm cp mv ln grep sed awk head tail wget nc " +
			"stat test true false date dd hexdump ps kill touch find sort uname hostname ip readlink sync sha256sum") {
		files["/bin/"+applet] = image.File{Link: "busybox"}
	}
	return files, nil
}

// fingerprint covers everything that a snapshot of a guest depends on except its own seed. It includes the UUIDs of the
// disks, not only the keys of their recipes: the guest in a snapshot has those file systems mounted and cached.
func (b *Bed) fingerprint() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, b.supply.Debian.Key(), b.programs, b.accel, b.keys.dir, b.ports.API, b.ports.Registry,
		b.supply.Parts.Dirs())
	for _, image := range []string{b.supply.Debian.Root(), b.programs} {
		uuid, err := disk.UUID(image)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, uuid)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
