package prove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/proof"
	"github.com/acceld/acceld/host"
)

const gpu = "0000:3b:00.0"

// built is where the libraries and the program are, once a test has asked for them. Another user must get there.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "acceld-prove")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// parts builds what all tests need, once.
var parts = sync.OnceValue(func() error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	return errors.Join(Players(context.Background(), root, built), Program(context.Background(), root, built, nil))
})

// prover returns what the agent has.
func prover(t *testing.T, ours func(int) bool) *proof.Prover {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("builds libraries that play devices: needs gcc")
	}
	if err := parts(); err != nil {
		t.Fatal(err)
	}
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	return proof.New(proof.Options{Host: h, Operations: &deadline.Operations{}, Beside: built, Ours: ours})
}

func device(id string) proof.Device { return proof.Device{ID: id, Libraries: built} }

// TestCUDA has the true program load a library that plays a GPU in every way.
func TestCUDA(t *testing.T) {
	for play, c := range map[string]struct {
		reason accel.Reason
		says   string
	}{
		"right":                        {"", ""},
		"old":                          {"", ""}, // the second form of the program serves
		"chatter":                      {"", ""},
		"wrong":                        {accel.CheckFailed, "1 of 1048576 numbers are wrong; the first is number 777777,"},
		"cuInit 100":                   {accel.CheckNotRun, "cuInit: 100 CUDA_ERROR_NO_DEVICE"},
		"cuInit 802":                   {accel.CheckNotRun, "fabric manager"},
		"cuInit 803":                   {accel.LibraryMismatch, "803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
		"cuInit 804":                   {accel.LibraryMismatch, "forward compatibility"},
		"cuInit 999":                   {accel.CheckNotRun, "nvidia_uvm"},
		"cuInit 4711":                  {accel.CheckNotRun, "a reason that is not known (cuInit: 4711)"},
		"cuDeviceGetByPCIBusId 101":    {accel.CheckNotRun, "only others"},
		"cuDevicePrimaryCtxRetain 46":  {accel.CheckNotRun, "no process has it open"},
		"cuDevicePrimaryCtxRetain 304": {accel.CheckNotRun, "the operating system refused a call"},
		"cuDevicePrimaryCtxRetain 805": {accel.CheckNotRun, "multi-process service"},
		"cuModuleLoadDataEx 218":       {accel.CheckNotRun, "ptxas fatal : this is why"},
		"cuModuleLoadDataEx 221":       {accel.CheckNotRun, "libnvidia-ptxjitcompiler"},
		"cuCtxSynchronize 700":         {accel.CheckFailed, "failed while it computed"},
		"cuCtxSynchronize 719":         {accel.CheckFailed, "719 CUDA_ERROR_LAUNCH_FAILED"},
		"cuMemcpyDtoH_v2 214":          {accel.CheckFailed, "memory error"},
		"hang":                         {accel.CheckFailed, "within 2s"},
		"crash":                        {accel.CheckNotRun, "has ended: signal: aborted"},
		"garbage":                      {accel.CheckNotRun, "acceld-prove has "},
		"node " + built + "/nvidiactl": {accel.CheckNotRun, "304 CUDA_ERROR_OPERATING_SYSTEM"},
	} {
		t.Run(play, func(t *testing.T) {
			t.Parallel()
			p := prover(t, nil) // one computes on a device once at a time
			check := &accel.CheckProgram{API: "cuda", Env: []string{"PLAY=" + play}}
			if play == "hang" {
				check.Timeout = "2s"
			}
			got := p.Prove(t.Context(), check, device(gpu))
			if c.reason == "" {
				if got.Problem != nil || got.Skipped != "" || got.Line.Name != "played GPU" ||
					got.Line.Driver != "12.2" || got.Line.Items != accel.ProofItems {
					t.Errorf("%+v %v", got, got.Problem)
				}
				return
			}
			if got.Problem == nil || got.Problem.Reason != c.reason || !strings.Contains(got.Problem.Message, c.says) ||
				!strings.Contains(got.Problem.Message, gpu) || got.Skipped != "" {
				t.Errorf("got %v, %q, want %s with %q", got.Problem, got.Skipped, c.reason, c.says)
			}
		})
	}
}

// TestAddress asks for a GPU that the library does not have, and for the only one.
func TestAddress(t *testing.T) {
	p := prover(t, nil)
	got := p.Prove(t.Context(), &accel.CheckProgram{API: "cuda"}, device("0000:3c:00.0"))
	if got.Problem == nil || got.Problem.Reason != accel.CheckNotRun ||
		!strings.Contains(got.Problem.Message, "is not seen by the driver's user space") {
		t.Error(got.Problem)
	}
	if got := p.Prove(t.Context(), &accel.CheckProgram{API: "cuda"}, device("")); got.Problem != nil {
		t.Error(got.Problem)
	}
}

// TestParts: of a divided GPU each instance computes, and no other in its place. A whole GPU computes although another
// one is divided. One that was divided, and is not seen since it was reset, was not checked.
func TestParts(t *testing.T) {
	p := prover(t, nil)
	const whole = "GPU-3b3b3b3b-3b3b-3b3b-3b3b-3b3b3b3b3b3b"
	const first, second = "MIG-01010101-0101-0101-0101-010101010101", "MIG-02020202-0202-0202-0202-020202020202"
	part := func(uuid string) proof.Device {
		return proof.Device{ID: gpu + "-1g.1gb-gi1-ci0", UUID: uuid, Part: true, Libraries: built}
	}
	for _, c := range []struct {
		play        string
		device      proof.Device
		name        string
		reason      accel.Reason
		says, skips string
	}{
		{"divided", part(first), "played instance 1", "", "", ""},
		{"divided", part(second), "played instance 2", "", "", ""},
		{"divided wrong", part(first), "played instance 1", "", "", ""},
		{"divided wrong", part(second), "", accel.CheckFailed, "computed wrongly", ""},
		{"divided", part(""), "", "", "", "its UUID is not known"},
		{"right", part(first), "", accel.CheckNotRun, "100 CUDA_ERROR_NO_DEVICE", ""},
		{"deaf", part(first), "", accel.CheckNotRun, "and shows 3b3b3b", ""},
		{"other", device(gpu), "", accel.CheckNotRun, "is not seen", ""},
		{"other", proof.Device{ID: gpu, UUID: whole, Libraries: built}, "played GPU", "", "", ""},
		{
			"divided",
			proof.Device{ID: "0000:3c:00.0", UUID: whole, Libraries: built},
			"", accel.CheckNotRun,
			"and shows 010101", "",
		},
		{
			"cuInit 100",
			proof.Device{ID: gpu, UUID: whole, Divided: true, Libraries: built},
			"", "", "",
			"it was divided, and",
		},
		{"right", proof.Device{ID: gpu, UUID: whole, Divided: true, Libraries: built}, "played GPU", "", "", ""},
		{"wrong", proof.Device{ID: gpu, Divided: true, Libraries: built}, "", accel.CheckFailed, "wrongly", ""},
	} {
		got := p.Prove(t.Context(), &accel.CheckProgram{API: "cuda", Env: []string{"PLAY=" + c.play}}, c.device)
		if got.Problem == nil {
			got.Problem = &accel.Problem{}
		}
		if c.name != "" && got.Line.Name != c.name || got.Problem.Reason != c.reason ||
			!strings.Contains(got.Problem.Message, c.says) || !strings.HasPrefix(got.Skipped, c.skips) ||
			c.skips == "" && got.Skipped != "" {
			t.Errorf("%q, %+v: %+v %v", c.play, c.device, got, got.Problem)
		}
	}
	one := proof.Device{ID: gpu, UUID: whole, Part: true}
	if got := p.Prove(t.Context(), &accel.CheckProgram{API: "opencl"}, one); got.Problem == nil ||
		got.Problem.Reason != accel.CheckNotRun {
		t.Errorf("OpenCL, which cannot be shown a part: %+v", got)
	}
}

// TestPrivileges: the library has no capabilities, gains none, and sees no environment but its own. It runs as a user
// of its own if that user, with the nodes' group, can open them, and otherwise as root.
func TestPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives up privileges: needs root")
	}
	t.Setenv("SECRET", "the agent's")
	p := prover(t, nil)
	node := func(mode os.FileMode, group int) accel.DeviceNode {
		name := filepath.Join(t.TempDir(), "node")
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chown(name, 0, group),
			os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
		return accel.DeviceNode{Path: name}
	}
	none := "CapEff: 0000000000000000;CapPrm: 0000000000000000;NoNewPrivs: 1;"
	for name, c := range map[string]struct {
		nodes  []accel.DeviceNode
		root   bool
		groups string
	}{
		"open": {[]accel.DeviceNode{node(0o666, 0)}, false, "Groups: ;"},
		"of a group": {
			[]accel.DeviceNode{node(0o660, 44), node(0o666, 0), node(0o660, 44)}, false, "Groups: 44 ;",
		},
		"root's":            {[]accel.DeviceNode{node(0o666, 0), node(0o600, 44)}, true, ""},
		"of root's group":   {[]accel.DeviceNode{node(0o660, 0)}, true, ""},
		"for readers":       {[]accel.DeviceNode{node(0o444, 0)}, false, "Groups: ;"},
		"for root to read":  {[]accel.DeviceNode{node(0o400, 0)}, true, ""},
		"missing, optional": {[]accel.DeviceNode{{Path: "/dev/no-such-node"}}, false, "Groups: ;"},
	} {
		t.Run(name, func(t *testing.T) {
			d := device(gpu)
			d.Nodes, d.Shared = c.nodes[:1], c.nodes[1:]
			got := p.Prove(t.Context(), &accel.CheckProgram{API: "cuda", Env: []string{"PLAY=who"}}, d)
			is := strings.Join(strings.Fields(got.Line.Name), " ")
			root := strings.HasPrefix(is, "Uid: 0 0 0 0;")
			if got.Problem != nil || root != c.root || !strings.HasSuffix(is, none) ||
				!c.root && (!strings.HasPrefix(is, "Uid: 1") || !strings.Contains(is, c.groups)) {
				t.Errorf("%q %v", is, got.Problem)
			}
		})
	}
	created, d := filepath.Join(t.TempDir(), "nvidiactl"), device(gpu)
	d.Nodes = []accel.DeviceNode{node(0o600, 0)} // so that it stays root
	got := p.Prove(t.Context(), &accel.CheckProgram{API: "cuda", Env: []string{"PLAY=node " + created}}, d)
	if _, err := os.Lstat(created); err == nil || got.Problem == nil {
		t.Errorf("a library created a device node: %v %v", err, got.Problem)
	}
	got = p.Prove(t.Context(), &accel.CheckProgram{API: "cuda", Env: []string{"PLAY=environment"}}, device(gpu))
	for name := range strings.FieldsSeq(got.Line.Name) {
		switch name {
		case "PATH", "LC_ALL", "LD_LIBRARY_PATH", "PLAY", "CUDA_CACHE_DISABLE":
		default:
			t.Errorf("the library sees %q", name)
		}
	}
}

// TestBusy: a device that a process holds and leaves to nobody else has not failed; if no process but acceld's holds
// it, something is wrong.
func TestBusy(t *testing.T) {
	p := prover(t, func(pid int) bool { return pid == os.Getpid() })
	held := func(path string, minor uint32) proof.Device {
		d := device(gpu)
		d.Nodes = []accel.DeviceNode{{Path: path, Major: 1, Minor: minor}}
		return d
	}
	full, err := os.Open("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, code := range []string{"cuDevicePrimaryCtxRetain 46", "cuMemAlloc_v2 2"} {
		check := &accel.CheckProgram{API: "cuda", Env: []string{"PLAY=" + code}}
		got := p.Prove(t.Context(), check, held("/dev/full", 7))
		if got.Skipped != "" || got.Problem == nil || got.Problem.Reason != accel.CheckNotRun {
			t.Errorf("%s: %q %v", code, got.Skipped, got.Problem)
		}
		cmd := exec.Command("sleep", "1000")
		cmd.Stdin = full
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		got = p.Prove(t.Context(), check, held("/dev/full", 7))
		user := fmt.Sprintf("sleep (pid %d) uses it", cmd.Process.Pid)
		if got.Problem != nil || !strings.Contains(got.Skipped, user) {
			t.Errorf("%s: %q %v", code, got.Skipped, got.Problem)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// TestLibraryMissing: the library itself, one without the interface, the program.
func TestLibraryMissing(t *testing.T) {
	p := prover(t, nil)
	for _, optional := range []bool{false, true} {
		check := &accel.CheckProgram{API: "cuda", Library: "libnone-of-these.so.1", Optional: optional}
		got := p.Prove(t.Context(), check, device(gpu))
		says := `library "libnone-of-these.so.1" was not found on the host`
		if optional && (got.Problem != nil || got.Skipped != says) ||
			!optional && (got.Problem == nil || got.Problem.Reason != accel.CheckNotRun ||
				!strings.Contains(got.Problem.Message, says)) {
			t.Errorf("%q %v", got.Skipped, got.Problem)
		}
		check.Library = "libOpenCL.so.1" // it is there, and not what is asked for
		got = p.Prove(t.Context(), check, device(gpu))
		if got.Problem == nil || !strings.Contains(got.Problem.Message, `has no function "cuInit"`) {
			t.Errorf("%q %v", got.Skipped, got.Problem)
		}
		h, _ := host.New("/")
		none := proof.New(proof.Options{Host: h, Operations: &deadline.Operations{}, Beside: t.TempDir()})
		got = none.Prove(t.Context(), check, device(gpu))
		if optional != (got.Skipped != "") || optional == (got.Problem != nil) {
			t.Errorf("%q %v", got.Skipped, got.Problem)
		}
	}
	broken := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(broken), 0o755), os.Chmod(broken, 0o755),
		os.WriteFile(filepath.Join(broken, "libcuda.so.1"), []byte("half a library"), 0o644)); err != nil {
		t.Fatal(err)
	}
	optional := &accel.CheckProgram{API: "cuda", Optional: true}
	got := p.Prove(t.Context(), optional, proof.Device{ID: gpu, Libraries: broken})
	if got.Problem == nil || got.Problem.Reason != accel.CheckNotRun ||
		!strings.Contains(got.Problem.Message, "user space") {
		t.Errorf("%q %v", got.Skipped, got.Problem)
	}
}

// TestOpenCL: the device is found by whichever extension tells its address, and no other is taken for it.
func TestOpenCL(t *testing.T) {
	p := prover(t, nil)
	const cards = "CARDS=empty -,khr 0001:3b:00.0,nv 0000:3c:02.1,amd 0000:3d:00.0,none -"
	for _, c := range []struct{ env, device, name, says string }{
		{cards, "0001:3b:00.0", "played khr", ""},
		{cards, "0000:3c:02.1", "played nv", ""},
		{cards, "0000:3d:00.0", "played amd", ""},
		{cards, "0000:3b:00.0", "", "no OpenCL device at 0000:3b:00.0; there is played khr 0001:3b:00.0, played nv"},
		{cards, "", "", "there are 4 OpenCL devices"},
		{"CARDS=none -", "", "played none", ""},
		{"CARDS=none -", "0000:3b:00.0", "", "played none at no PCI address"},
		{"CARDS=empty -", "0000:3b:00.0", "", "no OpenCL device at 0000:3b:00.0, and no other"},
		{"CARDS=", "0000:3b:00.0", "", "-1001 CL_PLATFORM_NOT_FOUND_KHR"},
	} {
		got := p.Prove(t.Context(), &accel.CheckProgram{API: "opencl", Env: []string{c.env}}, device(c.device))
		if c.says == "" {
			if got.Problem != nil || got.Line.Name != c.name || got.Line.Driver == "" {
				t.Errorf("%q %q: %+v %v", c.env, c.device, got.Line, got.Problem)
			}
			continue
		}
		if got.Problem == nil || got.Problem.Reason != accel.CheckNotRun ||
			!strings.Contains(got.Problem.Message, c.says) {
			t.Errorf("%q %q: %v, want %q", c.env, c.device, got.Problem, c.says)
		}
	}
	wrong := &accel.CheckProgram{API: "opencl", Env: []string{cards, "WRONG=0000:3d:00.0"}}
	if got := p.Prove(t.Context(), wrong, device("0000:3d:00.0")); got.Problem == nil ||
		got.Problem.Reason != accel.CheckFailed {
		t.Error(got.Problem)
	}
	if got := p.Prove(t.Context(), wrong, device("0000:3c:02.1")); got.Problem != nil {
		t.Error(got.Problem)
	}
	unbuilt := &accel.CheckProgram{API: "opencl", Env: []string{cards, "UNBUILT=1"}}
	if got := p.Prove(t.Context(), unbuilt, device("0000:3d:00.0")); got.Problem == nil ||
		!strings.Contains(got.Problem.Message, "error: this is why") {
		t.Error(got.Problem)
	}
}
