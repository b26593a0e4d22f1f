package real

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/proof"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/prove"
)

// triplet is where Debian has libraries of this processor.
const triplet = "usr/lib/x86_64-linux-gnu"

// libraries are the directories below a root in which packages have their libraries.
func libraries(root string) string {
	return filepath.Join(root, triplet) + ":" + filepath.Join(root, strings.TrimPrefix(triplet, "usr"))
}

// need is the condition of all tests here.
func need(t *testing.T) {
	t.Helper()
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_TESTBED=1 is not set: packages of Debian would be fetched, which takes root and its archive")
	}
}

// prover returns what the agent has, with the program of the tree; other replaces files of its source.
func prover(t *testing.T, other map[string]string) *proof.Prover {
	t.Helper()
	dir := t.TempDir()
	tree, err := filepath.Abs("../../..")
	if err == nil {
		err = prove.Program(t.Context(), tree, dir, other)
	}
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	return proof.New(proof.Options{Host: h, Operations: &deadline.Operations{}, Beside: dir})
}

// closed is a node that only root can open, so that the program stays root: the cache of the test bed may be in root's
// home.
func closed(t *testing.T) []accel.DeviceNode {
	t.Helper()
	name := filepath.Join(t.TempDir(), "node")
	if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, 0o600)); err != nil {
		t.Fatal(err)
	}
	return []accel.DeviceNode{{Path: name}}
}

// TestOpenCL proves this machine's processor through pocl, with an empty and with a full cache of compiled kernels.
// What computes something else is CheckFailed, and an address that no device has is an honest answer.
func TestOpenCL(t *testing.T) {
	need(t)
	root, err := OpenCL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check := &accel.CheckProgram{API: "opencl", Timeout: "2m", Env: []string{
		"OCL_ICD_VENDORS=" + filepath.Join(root, triplet, "libpocl.so.2"), "POCL_CACHE_DIR=" + t.TempDir(),
	}}
	device := proof.Device{Libraries: libraries(root), Nodes: closed(t)}
	p := prover(t, nil)
	for _, when := range []string{"cold", "warm", "warm again"} {
		began := time.Now()
		got := p.Prove(t.Context(), check, device)
		if got.Problem != nil || got.Skipped != "" || got.Line.Name == "" {
			t.Fatalf("%s: %+v %v", when, got, got.Problem)
		}
		t.Logf("%s: %s, driver %s: %d numbers in %d ms, %v with the process", when, got.Line.Name, got.Line.Driver,
			got.Line.Items, got.Line.Milliseconds, time.Since(began).Round(time.Millisecond))
	}
	device.ID = "0000:3b:00.0"
	got := p.Prove(t.Context(), check, device)
	if got.Problem == nil || got.Problem.Reason != accel.CheckNotRun ||
		!strings.Contains(got.Problem.Message, "no OpenCL device at 0000:3b:00.0; there is") {
		t.Error(got.Problem)
	}
	device.ID = ""
	check.Env[0] = "OCL_ICD_VENDORS=" + t.TempDir()
	got = p.Prove(t.Context(), check, device)
	if got.Problem == nil || got.Problem.Reason != accel.CheckNotRun ||
		!strings.Contains(got.Problem.Message, "/etc/OpenCL/vendors") {
		t.Error(got.Problem)
	}
}

// TestOpenCLMutants changes the kernel: each must be noticed.
func TestOpenCLMutants(t *testing.T) {
	need(t)
	root, err := OpenCL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../../cmd/acceld-prove/kernel.cl")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, mutant string
		reason      accel.Reason
	}{
		"a step less":       {"step < 64", "step < 63", accel.CheckFailed},
		"another constant":  {"1013904223u", "1013904222u", accel.CheckFailed},
		"one number undone": {"if (i >= count)", "if (i == 1048575)", accel.CheckFailed},
		"no OpenCL C":       {"uint x;", "uint x", accel.CheckNotRun},
	} {
		t.Run(name, func(t *testing.T) {
			mutant := filepath.Join(t.TempDir(), "kernel.cl")
			text := strings.Replace(string(source), c.old, c.mutant, 1)
			if err := os.WriteFile(mutant, []byte(text), 0o644); err != nil || text == string(source) {
				t.Fatal("nothing was changed:", err)
			}
			check := &accel.CheckProgram{API: "opencl", Timeout: "2m", Env: []string{
				"OCL_ICD_VENDORS=" + filepath.Join(root, triplet, "libpocl.so.2"), "POCL_CACHE_DIR=" + t.TempDir(),
			}}
			p := prover(t, map[string]string{"kernel.cl": mutant})
			got := p.Prove(t.Context(), check, proof.Device{Libraries: libraries(root), Nodes: closed(t)})
			if got.Problem == nil || got.Problem.Reason != c.reason {
				t.Fatalf("%+v %v", got, got.Problem)
			}
			t.Log(got.Problem)
		})
	}
}

// TestCUDA: NVIDIA's own library, on a machine without a GPU, says that there is none; and nothing of it creates a
// device node, as it does for root otherwise.
func TestCUDA(t *testing.T) {
	need(t)
	if _, err := os.Stat("/sys/module/nvidia"); err == nil {
		t.Skip("this machine has NVIDIA's driver: the answer would be another one")
	}
	root, err := CUDA(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := exec.CommandContext(t.Context(), "find", root, "-name", "libcuda.so.1").Output()
	if err != nil || len(found) == 0 {
		t.Fatalf("cannot find libcuda.so.1: %v", err)
	}
	first, _, _ := strings.Cut(string(found), "\n")
	_, before := os.Stat("/dev/nvidiactl")
	p := prover(t, nil)
	began := time.Now()
	got := p.Prove(t.Context(), &accel.CheckProgram{API: "cuda"}, proof.Device{
		ID: "0000:3b:00.0", Libraries: filepath.Dir(first), Nodes: closed(t),
	})
	if got.Problem == nil || got.Problem.Reason != accel.CheckNotRun || got.Line.Fault == nil ||
		got.Line.Fault.Code != 100 || got.Line.Fault.Kind != accel.FaultNoDevice {
		t.Fatalf("%+v %v", got, got.Problem)
	}
	t.Logf("%v after %v", got.Problem, time.Since(began).Round(time.Millisecond))
	if _, after := os.Stat("/dev/nvidiactl"); errors.Is(before, os.ErrNotExist) && after == nil {
		t.Error("the library has created /dev/nvidiactl")
	}
}
