package host

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"

	"github.com/acceld/acceld/accel"
)

// attribute encodes an attribute of a netlink message; a text ends with a NUL.
func attribute(kind int, value any) []byte {
	switch v := value.(type) {
	case string:
		return nl.NewRtAttr(kind, nl.ZeroTerminated(v)).Serialize()
	case uint8:
		return nl.NewRtAttr(kind, nl.Uint8Attr(v)).Serialize()
	case int:
		return nl.NewRtAttr(kind, nl.Uint32Attr(uint32(v))).Serialize()
	case uint64:
		return nl.NewRtAttr(kind, nl.Uint64Attr(v)).Serialize()
	}
	return nl.NewRtAttr(kind, value.([]byte)).Serialize()
}

func joined(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func TestRDMAPort(t *testing.T) {
	port := func(number int, state, physical uint8, more ...[]byte) []byte {
		return joined(append([][]byte{
			attribute(nl.RDMA_NLDEV_ATTR_DEV_INDEX, 7), attribute(nl.RDMA_NLDEV_ATTR_DEV_NAME, "mlx5_0"),
			attribute(nl.RDMA_NLDEV_ATTR_PORT_INDEX, number),
			attribute(nl.RDMA_NLDEV_ATTR_PORT_STATE, state), attribute(nl.RDMA_NLDEV_ATTR_PORT_PHYS_STATE, physical),
		}, more...)...)
	}
	for _, c := range []struct {
		name    string
		message []byte
		want    accel.RDMAPort
	}{
		{
			"Ethernet", port(1, 4, 5, attribute(nl.RDMA_NLDEV_ATTR_NDEV_NAME, "eth0")),
			accel.RDMAPort{Number: 1, State: "active", Physical: "link-up", Interface: "eth0"},
		},
		{"InfiniBand without a cable", port(2, 1, 3), accel.RDMAPort{Number: 2, State: "down", Physical: "disabled"}},
		{"states of tomorrow", port(1, 77, 88), accel.RDMAPort{Number: 1}},
		{"nothing", nil, accel.RDMAPort{}},
		{"cut short", port(1, 4, 5)[:10], accel.RDMAPort{}},
	} {
		if diff := cmp.Diff(c.want, rdmaPort(c.message)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestGUID(t *testing.T) {
	for in, want := range map[string]string{
		"ee:ff:c0:00:03:9b:03:98": "9803:9b03:00c0:ffee", "": "", "ee:ff": "", "00:00:00:00:00:00:00:00": "",
		"ee:ff:c0:00:03:9b:03:x8": "", "ee:ff:c0:00:03:9b:03:8": "", "ee:ff:c0:00:03:9b:03:+8": "",
	} {
		if got := guid(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestDevlink: the version in flash does not hide the running one, and only PCI functions are kept.
func TestDevlink(t *testing.T) {
	message := func(bus, device string, more ...[]byte) []byte {
		header := (&nl.Genlmsg{Command: nl.DEVLINK_CMD_INFO_GET, Version: nl.GENL_DEVLINK_VERSION}).Serialize()
		name := joined(attribute(nl.DEVLINK_ATTR_BUS_NAME, bus), attribute(nl.DEVLINK_ATTR_DEV_NAME, device))
		return joined(append([][]byte{header, name}, more...)...)
	}
	version := func(kind int, name, value string) []byte {
		return attribute(kind, joined(
			attribute(nl.DEVLINK_ATTR_INFO_VERSION_NAME, name), attribute(nl.DEVLINK_ATTR_INFO_VERSION_VALUE, value),
		))
	}
	health := func(name string, state uint8, errors, recoveries uint64) []byte {
		return attribute(devlinkReporter, joined(
			attribute(devlinkReporterName, name), attribute(devlinkReporterState, state),
			attribute(devlinkReporterErrors, errors), attribute(devlinkReporterRecoveries, recoveries),
		))
	}
	const nic = "0000:01:00.0"
	got := map[string]DevlinkAnswer{}
	for _, m := range [][]byte{
		message("pci", nic, attribute(nl.DEVLINK_ATTR_INFO_DRIVER_NAME, "mlx5_core"),
			version(nl.DEVLINK_ATTR_INFO_VERSION_FIXED, "fw.psid", "MT_0001"),
			version(nl.DEVLINK_ATTR_INFO_VERSION_RUNNING, "fw.version", "28.40.1000"),
			version(nl.DEVLINK_ATTR_INFO_VERSION_STORED, "fw.version", "28.41.1000")),
		message("auxiliary", "mlx5_core.eth.0", version(nl.DEVLINK_ATTR_INFO_VERSION_RUNNING, "fw", "1")),
		message("pci", nic, health("fw", 0, 0, 0)),
		message("pci", nic, health("fw_fatal", 1, 3, 2)),
		{1, 2},
	} {
		addDevlink(got, m)
	}
	want := map[string]DevlinkAnswer{nic: {
		Running: map[string]string{"fw.psid": "MT_0001", "fw.version": "28.40.1000"},
		Stored:  map[string]string{"fw.version": "28.41.1000"},
		Reporters: []accel.HealthReporter{
			{Name: "fw", State: "healthy"}, {Name: "fw_fatal", State: "error", Errors: 3, Recoveries: 2},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestNetworkOfThisMachine: the kernel answers, and a kernel without RDMA or devlink is no error.
func TestNetworkOfThisMachine(t *testing.T) {
	h, err := New("/")
	must(t, err)
	got := h.Kernel().Network(t.Context(), []string{"lo", "no-such-device0"}, false)
	if got.Unknown != nil || got.Interfaces["lo"].MTU == 0 || len(got.Interfaces) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestNetworkOfACopy(t *testing.T) {
	h, err := New(t.TempDir())
	must(t, err)
	if got := h.Kernel().Network(t.Context(), []string{"lo"}, true); got.Unknown == nil || got.Interfaces != nil {
		t.Errorf("%+v", got)
	}
}

// TestInNetwork: requests for the namespace of process 1 run there, and no thread stays in it.
func TestInNetwork(t *testing.T) {
	other := exec.CommandContext(t.Context(), "sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := other.Start(); err != nil {
		t.Skipf("no right to make a network namespace: %v", err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "proc/1/ns"), 0o755))
	theirs := "/proc/" + strconv.Itoa(other.Process.Pid) + "/ns/net"
	must(t, os.Symlink(theirs, filepath.Join(root, "proc/1/ns/net")))
	h, err := New(root)
	must(t, err)
	namespace := func() string {
		text, err := os.Readlink("/proc/thread-self/ns/net")
		must(t, err)
		return text
	}
	want, err := os.Readlink(theirs)
	must(t, err)
	before := namespace()
	must(t, h.Kernel().inNetwork(func() error {
		if got := namespace(); got != want {
			t.Errorf("in %s, want %s", got, want)
		}
		all, err := net.Interfaces()
		if err != nil || len(all) != 1 {
			t.Errorf("%d interfaces, want the loopback alone: %v", len(all), err)
		}
		return nil
	}))
	if got := namespace(); got != before {
		t.Errorf("left in %s", got)
	}
	if empty, err := New(t.TempDir()); err != nil || empty.Kernel().inNetwork(func() error {
		t.Error("ran")
		return nil
	}) == nil {
		t.Error("ran without a process 1")
	}
}
