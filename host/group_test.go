package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestGroupOf finds the control group of a pod, or of a container outside pods, in each form that it has.
func TestGroupOf(t *testing.T) {
	const uid = "0b8f2a3c-1111-2222-3333-444455556666"
	slice := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0b8f2a3c_1111_2222_3333_444455556666.slice"
	for name, c := range map[string]struct{ cgroup, exists, dir, pod string }{
		"systemd driver": {
			"0::" + slice + "/crio-1.scope\n", slice + "/crio-1.scope", "/sys/fs/cgroup" + slice, uid,
		},
		"cgroupfs driver": {
			"0::/kubepods/besteffort/pod" + uid + "/c1\n", "/kubepods/besteffort/pod" + uid + "/c1",
			"/sys/fs/cgroup/kubepods/besteffort/pod" + uid, uid,
		},
		"version 1": {
			"4:pids:/kubepods/pod" + uid + "/c1\n0::/\n", "/pids/kubepods/pod" + uid + "/c1",
			"/sys/fs/cgroup/pids/kubepods/pod" + uid, uid,
		},
		"outside pods": {
			"0::/machine.slice/libpod-1.scope\n", "/machine.slice/libpod-1.scope",
			"/sys/fs/cgroup/machine.slice/libpod-1.scope", "",
		},
		"seen from a namespace": {
			"0::/../../kubepods/pod" + uid + "/c1\n", "/kubepods/pod" + uid + "/c1",
			"/sys/fs/cgroup/kubepods/pod" + uid, uid,
		},
		"a name that only looks like a pod's": {
			"0::/user.slice/pod" + uid + "\n", "/user.slice/pod" + uid,
			"/sys/fs/cgroup/user.slice/pod" + uid, "",
		},
		"the root":      {"0::/\n", "/", "", ""},
		"a group gone":  {"0::/x\n", "/", "", ""},
		"no such lines": {"x\n", "/", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := tempHost(t)
			put(t, h, "/proc/7/cgroup", c.cgroup)
			put(t, h, "/sys/fs/cgroup"+c.exists+"/cgroup.procs", "")
			g, err := h.Processes().GroupOf(7)
			if g.Dir != c.dir || g.Pod != c.pod || (err == nil) != (c.dir != "") || (g.ID != 0) != (err == nil) {
				t.Errorf("%+v, %v", g, err)
			}
			if g.Dir != "" && (!h.Processes().Contains(g, 7) || h.Processes().Contains(g, 8)) {
				t.Error("the process is not in its own group, or one that does not exist is")
			}
		})
	}
}

// TestInUnit: a service's processes are known by the group that systemd gave it, wherever a program may put itself.
func TestInUnit(t *testing.T) {
	h := tempHost(t)
	for pid, cgroup := range map[int]string{
		1: "0::/system.slice/x.service\n", 2: "0::/system.slice/x.service/sub\n", 3: "1:name=systemd:/system.slice/x.service\n",
		4: "0::/system.slice/x.service.d\n", 5: "0::/user.slice/system.slice/x.service\n",
	} {
		put(t, h, fmt.Sprintf("/proc/%d/cgroup", pid), cgroup)
		if got := h.Processes().InUnit(pid, "x.service"); got != (pid < 4) {
			t.Errorf("process %d: %t", pid, got)
		}
	}
}

// TestPopulated: a group that is gone has no processes, nor has one that another took the name of.
func TestPopulated(t *testing.T) {
	h := tempHost(t)
	p, of := h.Processes(), func(dir string) Group {
		id, err := h.Identity(dir)
		if err != nil {
			t.Fatal(err)
		}
		return Group{Dir: dir, ID: id}
	}
	const dir = "/sys/fs/cgroup/a"
	put(t, h, dir+"/cgroup.events", "populated 1\nfrozen 0\n")
	a := of(dir)
	if !p.Populated(a) || p.Populated(Group{Dir: dir, ID: a.ID + 1}) || p.Populated(Group{Dir: "/sys/fs/cgroup/b", ID: 1}) {
		t.Error("no process, or one in another group")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.AwaitEmpty(ctx, a); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	put(t, h, dir+"/cgroup.events", "populated 0\nfrozen 0\n")
	if err := p.AwaitEmpty(t.Context(), a); err != nil || p.Populated(a) {
		t.Error("a process", err)
	}
	put(t, h, "/sys/fs/cgroup/pids/b/c/cgroup.procs", "7\n") // version 1
	put(t, h, "/sys/fs/cgroup/pids/b/cgroup.procs", "")
	if !p.Populated(of("/sys/fs/cgroup/pids/b")) {
		t.Error("version 1")
	}
}

// TestKill kills what is meant, and nothing that is not meant any more.
func TestKill(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	if did, err := h.Processes().Kill(cmd.Process.Pid, func() bool { return false }); did || err != nil {
		t.Error(did, err)
	}
	if _, err := os.Readlink(filepath.Join("/proc", fmt.Sprint(cmd.Process.Pid), "exe")); err != nil {
		t.Error("killed although it was not meant")
	}
	if did, err := h.Processes().Kill(cmd.Process.Pid, func() bool { return true }); !did || err != nil {
		t.Error(did, err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Error(err)
	}
	if did, err := h.Processes().Kill(cmd.Process.Pid, func() bool { return true }); did || err != nil {
		t.Errorf("a process that has ended: %t, %v", did, err)
	}
}
