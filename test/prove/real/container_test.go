package real

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/userspace"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/test/prove"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/disk"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/vendors"
)

// cpu is a kind whose user space is pocl. The libraries are mounted where Debian has them, because pocl finds its own
// files from there.
func cpu(t *testing.T, root string) *accel.Definition {
	t.Helper()
	var names []string
	for _, dir := range strings.Split(libraries(root), ":") {
		files, err := filepath.Glob(filepath.Join(dir, "lib*.so*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			library, err := elf.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			soname, err := library.DynString(elf.DT_SONAME)
			library.Close()
			if err == nil && len(soname) == 1 && filepath.Base(file) == soname[0] {
				names = append(names, soname[0])
			}
		}
	}
	def := &accel.Definition{Kind: "example-cpu", Resource: "example.com/cpu"}
	def.Driver.UserSpace = &accel.UserSpace{Sources: []accel.Source{{Type: accel.SourceRoot, Path: "/"}}}
	def.Container.Libraries = []accel.Libraries{{Names: names, Path: "/" + triplet}}
	for _, dir := range []string{"/usr/share/pocl", "/" + triplet + "/pocl"} {
		def.Container.Mounts = append(def.Container.Mounts, accel.Mount{
			HostPath: dir, ContainerPath: dir, Options: []string{"ro", "nosuid", "nodev", "rbind"},
		})
	}
	return def
}

// described is the user space that acceld makes of a root, in the version, for the host in the directory that has that
// root, and a cache with the CDI spec that acceld writes for one device of the kind. The paths in it are those of this
// machine.
func described(t *testing.T, dir string, def *accel.Definition, version string, a accel.Accelerator) (
	userspace.Manifest, *cdi.Cache, *specs.Spec,
) {
	t.Helper()
	h, err := host.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, tell := slog.New(slog.DiscardHandler), func(accel.Progress) {}
	entries := store.New(h, store.Options{
		StateDir: "/var/lib/acceld", Log: log, Now: time.Now, Wait: time.Minute, Point: func(string) {},
		Locks: lock.Locks{Host: h, Tell: tell, Timeout: time.Minute},
	})
	spaces := userspace.New(h, userspace.Options{
		StateDir: "/var/lib/acceld", Log: log, Store: entries, Now: time.Now, Point: func(string) {},
	})
	began := time.Now()
	m, problem := spaces.Take(t.Context(), def, version, userspace.Tree{Host: h, Arch: "x86_64", Deep: true},
		userspace.Source{Type: accel.SourceRoot, Origin: "/"})
	if problem == nil {
		problem = spaces.Serve(def, version)
	}
	if problem != nil {
		t.Fatal(problem)
	}
	t.Logf("user space: %d files, %d bytes, %.1f s", len(m.Files), m.Size(), time.Since(began).Seconds())
	a.Health = accel.Health{State: accel.Healthy}
	_, problem = runtime.New(h, runtime.Options{Log: log}).Apply(def, []accel.Accelerator{a}, accel.Want{CDI: true})
	files := h.Glob("/var/run/cdi", "*.json")
	if problem != nil || len(files) != 1 {
		t.Fatal(problem, files)
	}
	// The link is one of the host's. From here its target is elsewhere.
	link := filepath.Join(dir, accel.UserSpaceRoot(def.Kind))
	err = errors.Join(os.Remove(link), os.Symlink(filepath.Join(dir, spaces.Root(m.Key)), link))
	text, readErr := h.ReadFile(files[0])
	var spec specs.Spec
	if err := errors.Join(err, readErr, json.Unmarshal(text, &spec)); err != nil {
		t.Fatal(err)
	}
	edits := []*specs.ContainerEdits{&spec.ContainerEdits}
	for i := range spec.Devices {
		edits = append(edits, &spec.Devices[i].ContainerEdits)
	}
	for _, e := range edits {
		for _, m := range e.Mounts {
			m.HostPath = filepath.Join(dir, m.HostPath)
		}
		for _, n := range e.DeviceNodes {
			n.HostPath = filepath.Join(dir, n.Path)
		}
	}
	to := t.TempDir()
	if text, err = json.Marshal(spec); err == nil {
		err = os.WriteFile(filepath.Join(to, "kind.json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := cdi.NewCache(cdi.WithSpecDirs(to), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	return m, c, &spec
}

// enter mounts a root over the files of the test bed's Debian, which stay as they are, and becomes a container in it.
const enter = `mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/rootfs"
exec "$3" --root "$2/state" run --bundle "$2" "acceld-${2##*/}"`

// box is where containers run: runc, and the files of the test bed's Debian, which has no user space of any device.
type box struct{ runc, tree string }

func boxes(t *testing.T) box {
	t.Helper()
	c, err := cache.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	log := progress.New(os.Stderr)
	t.Cleanup(log.Close)
	programs, err := parts.Build(t.Context(), c, log, parts.Runc)
	if err != nil {
		t.Fatal(err)
	}
	debian, err := disk.Make(t.Context(), c, log)
	if err != nil {
		t.Fatal(err)
	}
	return box{programs.Path("runc"), debian.Tree()}
}

// machine is a host in a directory that has the files of packages.
func machine(t *testing.T, packages string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "host")
	if out, err := exec.Command("cp", "-a", packages, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, d := range []string{"run", "dev", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestOpenCLInContainer: a container that a real runtime starts gets pocl by CDI, as acceld describes it, and computes
// through it. Its image has no OpenCL. With a kernel that computes something else the program says that it is wrong.
func TestOpenCLInContainer(t *testing.T) {
	need(t)
	packages, err := OpenCL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, dir := boxes(t), machine(t, packages)
	def := cpu(t, dir)
	_, devices, _ := described(t, dir, def, "3.1", accel.Accelerator{ID: "0000:01:00.0"})
	device := def.CDIName("0000:01:00.0")
	for name, want := range map[string]struct {
		device, kernel string
		fault          accel.ProofFaultKind
	}{
		"it computes":                           {device, "", ""},
		"without the device it has no library":  {"", "", accel.FaultNoLibrary},
		"a kernel that computes something else": {device, "1013904223u", accel.FaultWrong},
	} {
		t.Run(name, func(t *testing.T) {
			other := map[string]string(nil)
			if want.kernel != "" {
				other = map[string]string{"kernel.cl": filepath.Join(t.TempDir(), "kernel.cl")}
				text, err := os.ReadFile("../../../cmd/acceld-prove/kernel.cl")
				mutant := strings.Replace(string(text), want.kernel, "1013904222u", 1)
				if err = errors.Join(err, os.WriteFile(other["kernel.cl"], []byte(mutant), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			line := answer(t, b.run(t, devices, want.device, other, []string{
				"POCL_CACHE_DIR=/tmp/pocl", "OCL_ICD_VENDORS=/" + triplet + "/libpocl.so.2",
			}, "/usr/bin/acceld-prove", "-api", "opencl", "-seed", "7"))
			t.Logf("%s, driver %s: %d numbers in %d ms, %.1f s in all; fault %+v", line.Name, line.Driver, line.Items,
				line.Milliseconds, time.Since(began).Seconds(), line.Fault)
			if want.fault == "" && (line.Fault != nil || line.Items < accel.ProofItems) ||
				want.fault != "" && (line.Fault == nil || line.Fault.Kind != want.fault) {
				t.Errorf("want fault %q", want.fault)
			}
		})
	}
}

// TestCUDAInContainer: a container gets NVIDIA's own user space by CDI, as the definition that acceld brings describes
// it, on a host whose driver finds no GPU. Programs in it load the library by its soname, in the version of the driver,
// and are told that there is no device.
func TestCUDAInContainer(t *testing.T) {
	need(t)
	if _, err := os.Stat("/sys/module/nvidia"); err == nil {
		t.Skip("this machine has NVIDIA's driver: the answer would be another one")
	}
	packages, err := CUDA(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defs, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	const id = "0000:3b:00.0"
	b, dir := boxes(t), machine(t, packages)
	found, err := filepath.Glob(filepath.Join(dir, triplet, "nvidia/current/libcuda.so.*.*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("libcuda of one version is wanted: %v, %q", err, found)
	}
	version := strings.TrimPrefix(filepath.Base(found[0]), "libcuda.so.")
	module := filepath.Join(dir, "sys/module/nvidia")
	if err = os.MkdirAll(module, 0o755); err == nil {
		err = os.WriteFile(filepath.Join(module, "version"), []byte(version+"\n"), 0o444)
	}
	for name, number := range map[string]uint64{
		"nvidia0": unix.Mkdev(195, 0), "nvidiactl": unix.Mkdev(195, 255), "nvidia-uvm": unix.Mkdev(511, 0),
		"nvidia-uvm-tools": unix.Mkdev(511, 1),
	} {
		err = errors.Join(err, unix.Mknod(filepath.Join(dir, "dev", name), unix.S_IFCHR|0o666, int(number)))
	}
	if err != nil {
		t.Fatal(err)
	}
	def := *defs["nvidia-gpu"]
	def.Driver.UserSpace = &accel.UserSpace{Sources: []accel.Source{{Type: accel.SourceRoot, Path: "/"}}}
	_, devices, spec := described(t, dir, &def, version, accel.Accelerator{
		ID: id, Nodes: []accel.DeviceNode{{Path: "/dev/nvidia0", Major: 195}},
	})
	for _, m := range spec.ContainerEdits.Mounts {
		t.Logf("mount %s", m.ContainerPath)
	}
	// As CUDA images have it, and an image that knows nothing of NVIDIA.
	for _, env := range [][]string{{"LD_LIBRARY_PATH=/usr/local/nvidia/lib64"}, nil} {
		line := answer(t, b.run(t, devices, def.CDIName(id), nil, env, "/usr/bin/acceld-prove", "-api", "cuda", "-seed", "7",
			"-device", id))
		t.Logf("acceld-prove with %v: %+v, fault %+v", env, line, line.Fault)
		if line.Fault == nil || line.Fault.Kind != accel.FaultNoDevice || line.Fault.Code != 100 {
			t.Error("it was not told that there is no device")
		}
	}
	maps := b.run(t, devices, def.CDIName(id), nil, nil, "/bin/sh", "-c",
		`nvidia-smi; echo "status $?"; ls -l /usr/local/nvidia/lib64 /dev/nvidia*`)
	t.Logf("%s", maps)
	for _, want := range []string{"NVIDIA driver", "status 9", "libcuda.so." + version, "/dev/nvidiactl"} {
		if !strings.Contains(maps, want) {
			t.Errorf("nothing of %q", want)
		}
	}
}

// answer reads what acceld-prove said.
func answer(t *testing.T, said string) (line accel.ProofLine) {
	t.Helper()
	first, _, _ := strings.Cut(said, "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return line
}

// run runs a program in a container with a device, unless that is empty, and returns what it said, and then what it
// complained of. The container has acceld-prove, in which files of its source may be others.
func (b box) run(t *testing.T, devices *cdi.Cache, device string, other map[string]string, env []string,
	argv ...string,
) string {
	t.Helper()
	bundle := t.TempDir()
	top, err := filepath.Abs("../../..")
	for _, d := range []string{"upper/usr/bin", "upper/" + triplet, "work", "rootfs", "state"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(bundle, d), 0o755))
	}
	// pocl links what it compiles, as a C library for developers lets it.
	for _, name := range []string{"libm", "libc"} {
		err = errors.Join(err, os.Symlink(name+".so.6", filepath.Join(bundle, "upper", triplet, name+".so")))
	}
	if err == nil {
		err = prove.Program(t.Context(), top, filepath.Join(bundle, "upper/usr/bin"), other)
	}
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(b.runc, "spec", "--bundle", bundle)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(bundle, "config.json")
	var config oci.Spec
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	config.Process.Terminal, config.Root.Readonly = false, false
	config.Process.Args = argv
	config.Process.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=/tmp"}, env...)
	config.Mounts = append(config.Mounts, oci.Mount{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs"})
	if device != "" {
		if unresolved, err := devices.InjectDevices(&config, device); err != nil {
			t.Fatal(unresolved, err)
		}
	}
	if text, err = json.Marshal(config); err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	var said, complaints bytes.Buffer
	command = exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-euc", enter, "sh", b.tree, bundle, b.runc)
	command.Stdout, command.Stderr = &said, &complaints
	if err := command.Run(); err != nil && said.Len() == 0 {
		t.Fatalf("%v\n%s", err, complaints.String())
	}
	return said.String() + complaints.String()
}
