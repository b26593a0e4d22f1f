package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/cache"
)

// animal is a device of the zoo: its kind is "zoo-" and the name, and its definition is test/zoo/<name>.yaml.
type animal struct {
	name string
	// id begins the address of the device.
	id string
	// use is a shell script for a pod with the device. It prints want.
	use, want string
}

// call is the beginning of a script in Perl with an ioctl in it: the node, the request, and the buffer before and
// after.
const call = `perl -e 'sub call { my ($node, $request, $buffer) = @_; open(my $f, "+<", $node) or die "$node: $!";
defined(ioctl($f, $request, $buffer)) or die "ioctl: $!"; return $buffer } my ($node) = `

// animals are all but the USB device, of which the guests' disk has no modules.
func animals() []animal {
	return []animal{
		{
			"nvme", "0000:",
			`echo zebra | dd of=$(ls /dev/nvme*n1) conv=notrunc 2>/dev/null; head -c 5 $(ls /dev/nvme*n1)`, "zebra",
		},
		{"e1000e", "0000:", `cat /sys/bus/pci/devices/$(echo $ID)/net/*/address`, "52:54:00:7a:6f:6f"},
		{
			"watchdog", "platform:0000:00:1f.0-iTCO_wdt",
			`cd /dev; for n in watchdog[0-9]*; do printf V >$n; echo stopped; done`, "stopped",
		},
		{ // CXL_MEM_QUERY_COMMANDS with room for none says how many there are
			"cxl", "0000:",
			call + `</dev/cxl/mem*>; print unpack("L", call($node, 0x8008CE01, pack("LL", 0, 0))) > 5 ? "commands" : "none"'`,
			"commands",
		},
		{ // DRM_IOCTL_VERSION
			"gpu", "0000:",
			call + `</dev/dri/card*>; my $name = "\0" x 32; call($node, 0xC0406400,
				pack("l3x4QPQQQQ", 0, 0, 0, 32, $name, 0, 0, 0, 0)); print $name =~ s/\0.*//sr'`, "virtio_gpu",
		},
		{"port", "virtio:0000:", `echo parrot > $(ls /dev/vport*p*) && echo written`, "written"},
		{ // EVIOCGNAME
			"keyboard", "virtio:0000:",
			call + `</dev/input/event*>; print call($node, 0x80404506, "\0" x 64) =~ s/\0.*//sr'`, "QEMU Virtio Keyboard",
		},
		{
			"display", "drm:0000:",
			call + `</dev/dri/card*>; my $name = "\0" x 32; call($node, 0xC0406400,
				pack("l3x4QPQQQQ", 0, 0, 0, 32, $name, 0, 0, 0, 0)); print $name =~ s/\0.*//sr'`, "bochs-drm",
		},
		{"rxe", "infiniband:rxe0", verbs, "vectors"},
		{"firmware", "platform:QEMU0002:00", `cat $FIRMWARE/by_name/opt/zoo/raw`, "firefly"},
		// Their drivers are loaded or bound by the agent, which takes longer.
		{"igb", "0000:", `cat /sys/bus/pci/devices/$IGB_PARENT/$IGB_FUNCTION/device`, "0x10ca"},
		{"crypto", "virtio:0000:", aes, "69c4e0d86a7b0430d8cdb78070b4c55a"},
		{"testdev", "0000:", `exec 3<>/dev/uio0 && echo opened`, "opened"},
	}
}

// aes encrypts the block of FIPS 197, C.1, by the device's algorithm, which the kernel names after the driver. In CBC
// with an initial vector of zeros the first block is that of ECB.
const aes = `perl -e 'socket(my $s, 38, 5, 0) or die $!;
bind($s, pack("Sa14LLa64", 38, "skcipher", 0, 0, $ENV{ALGORITHM})) or die "bind: $!";
setsockopt($s, 279, 1, pack("H*", "000102030405060708090a0b0c0d0e0f")) or die "key: $!";
my $fd = syscall(288, fileno($s), 0, 0, 0); $fd >= 0 or die "accept: $!";
my $text = pack("H*", "00112233445566778899aabbccddeeff"); my $iov = pack("PQ", $text, 16);
my $control = pack("QllL", 20, 279, 3, 1) . "\0\0\0\0" . pack("QllL", 36, 279, 2, 16) . "\0" x 16 . "\0\0\0\0";
my $message = pack("QLx4PQPQLx4", 0, 0, $iov, 1, $control, length($control), 0);
syscall(46, $fd, $message, 0) == 16 or die "sendmsg: $!"; my $out = "\0" x 16;
syscall(0, $fd, $out, 16) == 16 or die "read: $!"; print unpack("H*", $out)'`

// verbs opens the RDMA device and asks for its context (IB_USER_VERBS_CMD_GET_CONTEXT), as every program that uses one.
const verbs = `perl -e 'my ($node) = </dev/infiniband/uverbs*>; open(my $f, "+<", $node) or die "$node: $!";
my $answer = "\0" x 64; my $command = pack("LSSP", 0, 4, 2, $answer); syscall(1, fileno($f), $command, 16) == 16 or
die "write: $!"; print unpack("x4L", $answer) > 0 ? "vectors" : "none"'`

// zooDevices are QEMU's arguments for the devices. A file on this machine has what the guest writes to the two ports.
func zooDevices(dir string) []string {
	args := []string{
		"-machine", "cxl=on", "-machine", "cxl-fmw.0.targets.0=cxl.0,cxl-fmw.0.size=4G",
		"-chardev", "file,id=parrot,path=" + filepath.Join(dir, "port"),
		"-chardev", "file,id=whale,path=" + filepath.Join(dir, "serial"),
		"-object", "cryptodev-backend-builtin,id=backend",
		"-object", "memory-backend-ram,id=cxlmemory,size=256M",
		"-drive", "if=none,id=stripes,format=raw,file=" + filepath.Join(dir, "disk"),
		"-fw_cfg", "name=opt/zoo,string=firefly",
	}
	for _, d := range []string{
		"pci-testdev", "nvme,serial=zebra,drive=stripes",
		"pcie-root-port,id=zoo1,bus=pcie.0,chassis=21,slot=21", "igb,bus=zoo1", "e1000e,mac=52:54:00:7a:6f:6f",
		"virtio-crypto-pci,cryptodev=backend", "virtio-gpu-pci", "virtio-keyboard-pci", "bochs-display",
		"virtio-serial-pci", "virtserialport,name=zoo,chardev=parrot",
		"qemu-xhci,id=usb,addr=1d.0", "usb-serial,id=whale,serial=whale,chardev=whale,port=2",
		"pxb-cxl,bus_nr=52,bus=pcie.0,id=cxl.0", "cxl-rp,id=cxlport,bus=cxl.0,chassis=22,slot=22",
		"cxl-type3,bus=cxlport,volatile-memdev=cxlmemory,id=cxl0",
	} {
		args = append(args, "-device", d)
	}
	return args
}

// TestZoo: devices that have nothing in common but a driver of the kernel are described in a few lines each, come from
// a bare kernel to ready, and are used by a pod that asks for one. They are on PCI, on buses below it, on USB, on the
// platform, and in classes, one of them without any hardware.
func TestZoo(t *testing.T) {
	dir := t.TempDir()
	stage.Check(t, os.WriteFile(filepath.Join(dir, "disk"), make([]byte, 16<<20), 0o600))
	n, s := stage.StartNode(t, bed.Options{Devices: zooDevices(dir)})
	g := n.Guest
	usb := usbModules(t, g)
	stage.Check(t, s.Units(t.Context(), g, byDevicePlugin))
	stage.Check(t, stage.Credentials(t.Context(), n))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	files, err := filepath.Glob(s.File("test/zoo/*.yaml"))
	stage.Check(t, err)
	for _, file := range files {
		stage.Check(t, g.Put(t.Context(), file, "/etc/acceld/definitions.d/"+filepath.Base(file), 0o644))
	}
	sh(t, g, `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev $(ip -o route get 10.0.2.2 | sed 's/.* dev \([^ ]*\).*/\1/')`)
	stage.Check(t, s.Enable(t.Context(), g))
	t.Logf("acceld detect:\n%s", sh(t, g, "acceld detect"))
	for _, a := range animals() {
		t.Run(a.name, func(t *testing.T) { a.lives(t, n, image) })
	}
	t.Run("serial", func(t *testing.T) {
		if !usb {
			t.Fatal("the packages of the guests' kernels are not in the cache")
		}
		plugged(t, n, image, filepath.Join(dir, "serial"))
	})
	for _, a := range append(animals(), animal{name: "serial"}) {
		has(t, g, a.name+" to be ready", func(m accel.Machine) bool { return m.Status["zoo-"+a.name].State == accel.Ready })
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "port")); string(text) != "parrot\n" {
		t.Errorf("this machine got %q from the pod with the port", text)
	}
	t.Logf("acceld status:\n%s", sh(t, g, "acceld status || true"))
}

// lives waits for the device and lets a pod use it.
func (a animal) lives(t *testing.T, n *bed.Node, image string) {
	kind := "zoo-" + a.name
	m, err := stage.WaitMachine(stage.Within(t, 5*time.Minute), n.Guest, kind, func(m accel.Machine) bool {
		return m.Status[kind].State == accel.Ready && accel.CountOffered(accel.Units(m.Have[kind].Accelerators)) > 0
	})
	if err != nil {
		t.Fatalf("%v\n%s is %+v\n%+v", err, kind, m.Status[kind], m.Have[kind])
	}
	x, def := m.Have[kind].Accelerators[0], m.Want.Kinds[kind]
	if !strings.HasPrefix(x.ID, a.id) {
		t.Errorf("its address is %q, want %s…", x.ID, a.id)
	}
	of := def.Offered()
	if x.Partitioned() {
		of = def.OfferedAs(x.Partitions[0].Profile)
	}
	pod, err := json.Marshal(a.pod(image, of, x.ID))
	stage.Check(t, err)
	apply(t, n, pod)
	err = n.WaitPod(stage.Within(t, 3*time.Minute), "default", kind, corev1.PodSucceeded)
	out, _ := n.PodLog(t.Context(), "default", kind)
	t.Logf("%d lines of YAML, pod with one %s: %q", a.lines(t), of, out)
	if err != nil || !strings.Contains(out, a.want) {
		t.Errorf("the pod says %q, want %q: %v", out, a.want, err)
	}
}

// lines counts the lines of the definition, without comments.
func (a animal) lines(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("../zoo/" + a.name + ".yaml")
	stage.Check(t, err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// pod returns a pod that requests one unit of a resource and uses it with the guest's own programs. It shares the
// guest's network, where the network card is.
func (a animal) pod(image, of, id string) corev1.Pod {
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	for name, at := range map[string]string{"usr": "/usr", "bin": "/bin", "lib": "/lib", "lib64": "/lib64"} {
		volumes = append(volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: at}},
		})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: true})
	}
	return corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "zoo-" + a.name, Namespace: "default"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, HostNetwork: true, Volumes: volumes,
			Containers: []corev1.Container{{
				Name: "visitor", Image: image, Command: []string{"/bin/sh", "-c", a.use}, VolumeMounts: mounts,
				Env: []corev1.EnvVar{{Name: "PATH", Value: "/usr/sbin:/usr/bin:/sbin:/bin"}, {Name: "ID", Value: id}},
				Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{corev1.ResourceName(of): resource.MustParse("1")},
				},
			}},
		},
	}
}

// usbModules gives the guest the modules for USB, which its disk lacks: they are in the packages of its kernels.
func usbModules(t *testing.T, g *bed.Guest) bool {
	t.Helper()
	c, err := cache.Open(t.Logf)
	stage.Check(t, err)
	debs, err := filepath.Glob(c.Path("kernels") + "/" + g.Kernel() + "/linux-image-*.deb")
	stage.Check(t, err)
	if len(debs) == 0 {
		return false
	}
	dir, err := g.Keep(t.Context(), "usb", cache.NewKey("1", debs[0]), func(tmp string) error {
		const unpack = `cd "$1"; dpkg-deb --fsys-tarfile "$2" | tar -x --wildcards '*/kernel/drivers/usb/*' && tar -cf usb.tar lib && rm -r lib`
		return exec.CommandContext(t.Context(), "sh", "-euc", unpack, "sh", tmp, debs[0]).Run()
	})
	stage.Check(t, err)
	stage.Check(t, g.Put(t.Context(), filepath.Join(dir, "usb.tar"), "/root/usb.tar", 0o600))
	sh(t, g, `tar -xf /root/usb.tar -C / --keep-directory-symlink --no-same-owner; rm /root/usb.tar; depmod -a; modprobe xhci_pci
for i in $(seq 100); do test -e /sys/bus/usb/devices/1-2 && exit 0; sleep 0.1; done; exit 1`)
	return true
}

// plugged is the serial adapter: a pod writes through it, it is pulled out, and comes back with its address.
func plugged(t *testing.T, n *bed.Node, image, file string) {
	g := n.Guest
	a := animal{"serial", "usb:0000:00:1d.0-v2-2", `echo whale > $(ls /dev/ttyUSB*) && sleep 1 && echo written`, "written"}
	a.lives(t, n, image)
	if text, _ := os.ReadFile(file); !strings.HasPrefix(string(text), "whale") {
		t.Errorf("this machine got %q from the pod with the adapter", text)
	}
	stage.Check(t, g.Monitor().Execute(t.Context(), "device_del", map[string]any{"id": "whale"}, nil))
	has(t, g, "the adapter to be gone", func(m accel.Machine) bool {
		accs := m.Have["zoo-serial"].Accelerators
		return len(accs) == 1 && accs[0].Health.State == accel.Gone
	})
	stage.Check(t, g.Monitor().Execute(t.Context(), "device_add", map[string]any{
		"driver": "usb-serial", "id": "whale", "serial": "whale", "chardev": "whale", "port": "2", "bus": "usb.0",
	}, nil))
	has(t, g, "the adapter to be back", func(m accel.Machine) bool {
		accs := m.Have["zoo-serial"].Accelerators
		return m.Status["zoo-serial"].State == accel.Ready && len(accs) == 1 && accs[0].Health.Usable() &&
			accs[0].ID == a.id && accs[0].Serial == "whale"
	})
}
