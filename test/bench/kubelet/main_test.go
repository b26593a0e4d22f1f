// Package kubelet measures what a kubelet waits for: the agent as it is in life, the whole program in a root of its
// own, and beside it a generic device plugin and the example DRA driver of Kubernetes, at one kubelet that is this
// program. The calls of a kubelet come 50 at a time, in turn to each contestant. It prints figures and ratios and
// asserts none of the times; it holds every answer to what it should be.
//
// The peers are programs of public repositories that are built outside of this tree; without one the agent is measured
// alone:
//
//	ACCELD_PEER_DEVICE_PLUGIN   github.com/squat/generic-device-plugin
//	ACCELD_PEER_DRA_DRIVER      the plugin for kubelets of sigs.k8s.io/dra-example-driver
package kubelet

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

const (
	pluginPeer = "ACCELD_PEER_DEVICE_PLUGIN"
	driverPeer = "ACCELD_PEER_DRA_DRIVER"
)

// inside is set in the process that has a mount namespace of its own.
const inside = "ACCELD_BENCH_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv("ACCELD_BENCH") != "1" || os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	// What is mounted below the agent's root is seen by nobody else and goes with this process.
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		fmt.Fprintf(os.Stderr, "a mount namespace of its own (root) is needed: %v\n", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// need skips what is only measured when asked for.
func need(t *testing.T) {
	t.Helper()
	if os.Getenv("ACCELD_BENCH") != "1" {
		t.Skip("ACCELD_BENCH=1 is not set")
	}
}

// peer returns the program of a peer, or nothing and says so.
func peer(t *testing.T, variable string) string {
	t.Helper()
	program := os.Getenv(variable)
	if program == "" {
		t.Logf("%s names no program: the agent is measured alone", variable)
		return ""
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	t.Logf("beside %s %s", info.Main.Path, info.Main.Version)
	return program
}
