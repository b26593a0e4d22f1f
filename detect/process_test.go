package detect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// status is the /proc/<pid>/status of a process of a user, with its PIDs in the machine's namespace and those below.
func status(user string, pids ...string) string {
	return "Name:\tx\nPPid:\t1\nUid:\t" + strings.Join([]string{user, user, user, user}, "\t") + "\nNSpid:\t" +
		strings.Join(pids, "\t") + "\n"
}

// TestDecoys: a tenant may start a process with any name and any arguments. The kubelet is one that root started on the
// host itself, whatever the PIDs are, and what is ignored is said.
func TestDecoys(t *testing.T) {
	const uid = "0b8f0c62-1111-2222-3333-444455556666"
	for name, c := range map[string]struct{ status, cgroup, note string }{
		"in a pod with the host's PIDs": {
			status("0", "20"), "0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-o-x.scope",
			"it runs in pod " + uid,
		},
		"in a pod, by the other cgroup driver": {
			status("0", "20"), "4:pids:/kubepods/burstable/pod" + uid + "/x\n0::/\n", "it runs in pod " + uid,
		},
		"in a pod, seen from another pod": {
			status("0", "20"), "0::/../../pod" + uid + "/x", "it runs in pod " + uid,
		},
		"in a pod that calls its control group a service": {
			status("0", "20"), "0::/kubepods/besteffort/x/system.slice/kubelet.service", "it runs in a pod",
		},
		"in a container":     {status("0", "20", "1"), "0::/machine.slice/x.scope", "it runs in a container"},
		"of a user":          {status("1000", "20"), "0::/user.slice/user-1000.slice/session-1.scope", "it does not run as root"},
		"with set-user-ID":   {"Uid:\t1000\t0\t0\t0\nNSpid:\t20\n", "0::/user.slice/x.scope", "it does not run as root"},
		"with a false name":  {"Name:\tx\\nUid:\t0\t0\t0\t0\nUid:\t7\t7\t7\t7\nNSpid:\t20\n", "0::/", "it does not run as root"},
		"without a user":     {"Name:\tkubelet\n", "0::/", "it is not known whose it is"},
		"with a long status": {status("0", "20") + strings.Repeat("x", 70000), "0::/", "it is not known whose it is"},
	} {
		files := map[string]string{
			"var/lib/kubelet/device-plugins/x": "", "var/lib/kubelet/pod-resources/x": "",
			"proc/20/comm": "kubelet\n", "proc/20/cmdline": "kubelet\x00--root-dir=/tmp/decoy\x00",
			"proc/20/status": c.status, "proc/20/cgroup": c.cgroup,
			"proc/4000/comm": "kubelet\n", "proc/4000/cmdline": "kubelet\x00--root-dir=/k\x00",
			"proc/4000/status": status("0", "4000"), "proc/4000/cgroup": "0::/system.slice/kubelet.service\n",
		}
		h := machine(t, files)
		l := &look{Host: h}
		k, _ := l.kubeletAndEngine()
		if want := `a process named "kubelet" is ignored: ` + c.note; k.Root != "/k" || len(l.problems) > 0 ||
			!cmp.Equal(l.notes, []string{want}) {
			t.Errorf("%s: root %q, notes %q, problems %q", name, k.Root, l.notes, l.problems)
		}
		delete(files, "proc/4000/comm")
		l = &look{Host: machine(t, files)}
		if k, _ := l.kubeletAndEngine(); k.Root != kubeletRoot {
			t.Errorf("%s, alone: root %q", name, k.Root)
		}
	}
}

// TestDecoyWithoutControlGroup: with --cgroups-per-qos=false, a pod's process may be in any control group, and with the
// host's PIDs it is in no namespace of PIDs below. What it does not have is the machine's file system, or a service's
// control group.
func TestDecoyWithoutControlGroup(t *testing.T) {
	for cgroup, service := range map[string]bool{
		"0::/k8s.io/0123\n": false, "0::/\n": false, "0::/system.slice/cri-containerd-0123.scope\n": false,
		"0::/system.slice/containerd.service/0123\n": false, "0::/system.slice/containerd.service/x.service\n": false,
		"0::/0123/system.slice/kubelet.service\n": false, "0::/../../../kubelet\n": false,
		"0::/system.slice/kubelet.service\n": true, "0::/../../../system.slice/kubelet.service\n": true,
		"4:pids:/\n1:name=systemd:/system.slice/snap.microk8s.daemon-kubelite.service\n": true,
	} {
		for _, same := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
			h := machine(t, map[string]string{
				"var/lib/kubelet/device-plugins/x": "", "proc/1/ns/mnt": "", "proc/20/ns/x": "", "bin/x": "",
				"proc/20/comm": "kubelet\n", "proc/20/cmdline": "kubelet\x00--root-dir=/k\x00",
				"proc/20/status": status("0", "20"), "proc/20/cgroup": cgroup,
			})
			proc := filepath.Join(h.Root(), "proc")
			mounts, root := filepath.Join(proc, "20/ns/x"), proc
			if same[0] {
				mounts = filepath.Join(proc, "1/ns/mnt")
			}
			if same[1] {
				root = h.Root()
			}
			if err := errors.Join(os.Link(mounts, filepath.Join(proc, "20/ns/mnt")),
				os.Symlink(root, filepath.Join(proc, "20/root")), os.Symlink(h.Root(), filepath.Join(proc, "1/root")),
			); err != nil {
				t.Fatal(err)
			}
			l := &look{Host: h}
			k, _ := l.kubeletAndEngine()
			hosts := service || same[0] && same[1]
			if (k.Root == "/k") != hosts || (len(l.notes) == 0) != hosts {
				t.Errorf("%q, the machine's mounts and root: %v: root %q, notes %q", cgroup, same, k.Root, l.notes)
			}
		}
	}
}

// TestManyDecoys: what is said of decoys does not grow with their number, and does not change with their PIDs.
func TestManyDecoys(t *testing.T) {
	files := map[string]string{"var/lib/kubelet/device-plugins/x": ""}
	for _, pid := range strings.Fields("2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17") {
		files["proc/"+pid+"/comm"] = "kubelet\n"
		files["proc/"+pid+"/status"] = status("0", pid)
		files["proc/"+pid+"/cgroup"] = "0::/kubepods/pod0b8f0c62-1111-2222-3333-4444555566" + strings.Repeat(pid[:1], 2) + "/x"
	}
	f := Detect(machine(t, files), Options{})
	if len(f.Notes) != maxNotes || strings.Contains(strings.Join(f.Notes, ""), "17") {
		t.Errorf("notes: %q", f.Notes)
	}
}

// TestMainProcess: of several processes of the host with one name, the main process of a service comes first.
func TestMainProcess(t *testing.T) {
	files := map[string]string{}
	for pid, c := range map[string]struct{ parent, cgroup string }{
		"10": {"9", "0::/user.slice/user-0.slice/session-1.scope"},
		"20": {"15", "0::/system.slice/kubelet.service"},
		"30": {"1", "0::/system.slice/kubelet.service"},
		"40": {"1", "0::/system.slice/kubelet.service"},
	} {
		files["proc/"+pid+"/comm"] = "kubelet\n"
		files["proc/"+pid+"/status"] = strings.Replace(status("0", pid), "PPid:\t1", "PPid:\t"+c.parent, 1)
		files["proc/"+pid+"/cgroup"] = c.cgroup
	}
	for _, want := range []int{30, 40, 20, 10} {
		p, err := (&look{Host: machine(t, files)}).named("kubelet")
		if err != nil || p.pid != want {
			t.Errorf("%d, %v; want %d", p.pid, err, want)
		}
		for name := range files {
			if strings.HasPrefix(name, "proc/"+strings.TrimSpace(string([]byte{byte('0' + want/10), '0'}))+"/") {
				delete(files, name)
			}
		}
	}
}

// TestCommand: what a process says about itself is bounded.
func TestCommand(t *testing.T) {
	for name, c := range map[string]struct {
		cmdline string
		err     string
	}{
		"as many words as allowed": {strings.Repeat("x\x00", maxWords), ""},
		"a word more":              {strings.Repeat("x\x00", maxWords+1), "more than 1024 words"},
		"a long word":              {"kubelet\x00--root-dir=/" + strings.Repeat("x", maxWord), "more than 4096 bytes"},
		"no text":                  {"kubelet\x00--root-dir=/\xff", "not text"},
		"nothing":                  {"", ""},
		"very long":                {strings.Repeat("x", 70000), "longer than an attribute can be"},
	} {
		h := machine(t, map[string]string{"proc/5/cmdline": c.cmdline})
		got, err := commandOf(h, 5)
		if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || got.args != nil) {
			t.Errorf("%s: %d words, %v", name, len(got.args), err)
		}
	}
	for root, want := range map[string]bool{
		"/k": true, "k": false, "/k\nx": false, "/k\x1b[2J": false, "/" + strings.Repeat("x", maxWord): false, "": false,
	} {
		if usable(root) != want {
			t.Errorf("%.20q is usable: %t", root, !want)
		}
	}
}

// TestUnitCommand: the command of a unit follows systemd.unit(5) and systemd.exec(5).
func TestUnitCommand(t *testing.T) {
	h := machine(t, map[string]string{
		"usr/lib/systemd/system/x.service":        "[Service]\nExecStart=/usr/bin/old\nEnvironment=A=1 \"B=b c\"\n",
		"lib/systemd/system/x.service.d/50.conf":  "[Service]\nExecStart=\nExecStart=/usr/bin/masked\n",
		"etc/systemd/system/x.service.d/50.conf":  "; a comment\n[Unit]\nExecStart=/no\n[Service]\nExecStart=\nExecStart=-/usr/bin/x --a=${A} \\\n$B $NONE '$B' \"q r\" $ARGS\n",
		"run/systemd/system/x.service.d/60.conf":  "[Service]\nEnvironmentFile=-/etc/default/x\nEnvironmentFile=-/nothing\nEnvironmentFile=relative\n",
		"etc/systemd/system/x.service.d/70.other": "[Service]\nExecStart=/usr/bin/not\n",
		"etc/default/x":                   "# x\nA=\"2\"\nARGS=\"--config=/etc/x --y\"\n",
		"etc/systemd/system/none.service": "[Service]\nExecStart=/x\nExecStart=\n",
	})
	c, ok := unitCommand(h, "x.service")
	want := []string{"-/usr/bin/x", "--a=2", "b", "c", "b", "c", "q r", "--config=/etc/x", "--y"}
	if diff := cmp.Diff(want, c.args); diff != "" || !ok {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"none.service", "absent.service"} {
		if c, ok := unitCommand(h, name); ok {
			t.Errorf("%s: %q", name, c.args)
		}
	}
}

// TestPackageVersion: the version of a program without one is that of the package that it is from.
func TestPackageVersion(t *testing.T) {
	const program = "/usr/bin/containerd"
	stanza := func(name, status, version string) string {
		return "Package: " + name + "\nStatus: " + status + "\nDepends: x\n y\nVersion: " + version + "\n"
	}
	for name, c := range map[string]struct{ owner, status, want string }{
		"installed":             {"containerd", stanza("bash", "install ok installed", "5.2") + "\n" + stanza("containerd", "install ok installed", "1.6.20~ds1-1+b1"), "1.6.20~ds1-1+b1"},
		"with an epoch":         {"containerd.io", stanza("containerd.io", "hold ok installed", "1:1.7.27-1") + "\n", "1.7.27-1"},
		"removed":               {"containerd", stanza("containerd", "deinstall ok config-files", "1.6.20"), ""},
		"of another package":    {"tools", stanza("containerd", "install ok installed", "1.6.20"), ""},
		"hostile":               {"containerd", stanza("containerd", "install ok installed", "1.\x1b[2J"), ""},
		"a long line before it": {"containerd", "Package: x\nDescription: " + strings.Repeat("y", 200000) + "\n\n" + stanza("containerd", "install ok installed", "2.0.1"), "2.0.1"},
		"no database":           {"containerd", "", ""},
	} {
		h := machine(t, map[string]string{
			"var/lib/dpkg/info/" + c.owner + ":amd64.list": "/.\n" + program + "\n", "var/lib/dpkg/status": c.status,
			program[1:]: "",
		})
		if got := packageVersion(h, program, []string{"containerd", "containerd.io"}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if e, _ := EngineNamed(h, "containerd"); e.Version != c.want {
			t.Errorf("%s: the version of containerd is %q", name, e.Version)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add(status("0", "20"), "0::/system.slice/kubelet.service\n")
	f.Add("Uid:\t0 0 0 0\nNSpid:\t1 2\nPPid: 99999999999999999999\n", "0::/kubepods/x\n:::\n")
	f.Add("Name:\tUid:\t0\n", "1:name=systemd:/a.service/../b.service\n")
	f.Add("", "0:0000 0000000:0.service ") // the kernel writes no such line; it once made a service with an empty name
	f.Fuzz(func(t *testing.T, status, groups string) {
		p, err := parseStatus(status)
		if err == nil && p.root && !strings.Contains(status, "Uid") {
			t.Error("root without a user")
		}
		if len(podIn(groups)) > 64 || len(unitIn(groups)) > 255 || strings.ContainsAny(unitIn(groups), "/\n") {
			t.Errorf("pod %q, unit %q", podIn(groups), unitIn(groups))
		}
		if isService(groups) && unitIn(groups) == "" {
			t.Errorf("a service without a name: %q", groups)
		}
	})
}

// FuzzCommand: whatever a process or a unit says, its arguments are few, short and text, and quickly read.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{
		"kubelet\x00--root-dir=/k\x00", "A=1\x00B\x00", "[Service]\nExecStart=/x $A ${A}\nEnvironment=A='b c'\n", "\\\n\\\n", "\"'",
		"[Service]\nEnvironment=A=$A\nExecStart=$A$A${A}${A}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		begin := time.Now()
		all, err := words(b)
		if err != nil {
			all = nil
		}
		env := map[string]string{}
		for _, s := range serviceSettings(string(b)) {
			env[s.name] = s.value
			all = append(all, expand(fields(s.value), env)...)
		}
		c := command{args: all, env: env}
		for _, d := range c.dirs(setting{flags: []string{"root-dir", "c"}, env: "A"}) {
			if !utf8.ValidString(d) || len(d) > maxWord || strings.ContainsAny(d, "\n\x00") || d[0] != '/' {
				t.Errorf("a directory %q", d)
			}
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%d bytes took %s", len(b), took)
		}
	})
}
