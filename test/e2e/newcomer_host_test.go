package e2e

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/kernels"
)

// TestNewcomerHost reads the pages about a host from top to bottom on a plain one: what the README says about a host
// first, the way back last.
func TestNewcomerHost(t *testing.T) {
	vm.Require(t)
	w := &world{
		t: t, chapters: hostChapters(), prepare: plainHost, installed: packaged, strip: unpackaged, ready: agentReady,
		// On the older kernel, for which the newer one is the next.
		o: bed.Options{Accelerators: 1, NoKubernetes: true, Kernel: bed.Oldest, FreshBoot: true},
	}
	for _, c := range w.chapters {
		t.Run(c.name, func(t *testing.T) { w.read(t, c) })
	}
}

// plainHost is Debian with a compiler, the kernel's headers and the driver's source, as its package would put it there.
// Its device is called as the pages call one.
func plainHost(w *world) {
	stage.Check(w.t, w.s.Source(w.t.Context(), w.n.Guest))
	address := sh(w.t, w.n.Guest,
		`for d in /sys/bus/pci/devices/*; do [ "$(cat "$d/vendor" "$d/device" | tr '\n' ' ')" != "0x1234 0x11e8 " ] || basename "$d"; done`)
	if address == "" || strings.Contains(address, "\n") {
		w.t.Fatalf("the guest has devices at %q, want one", address)
	}
	first, has := kernels.First(), w.n.Kernels()
	w.names = append(w.names, "0000:00:04.0", address, first.Older, has[len(has)-1], first.Newer, has[0])
}

// packaged tells whether the package's agent is there and meant to run.
func packaged(w *world) bool {
	res, err := w.n.Run(stage.Within(w.t, soon), "systemctl", "is-enabled", "--quiet", "acceld.service")
	stage.Check(w.t, err)
	return res.OK()
}

func unpackaged(r *reader) { r.t.Logf("%s", apt(r.t, r.n.Guest, "purge", "acceld")) }

func agentReady(r *reader) { reaches(r.t, r.n.Guest, accel.Ready, patience) }

// hostChapters are what is read on a host without Kubernetes, in this order.
func hostChapters() []chapter {
	return []chapter{
		{name: "readme", page: "README.md", only: []string{"on-a-host-with-systemd"}, bare: true, before: []stop{
			// the host is another machine than the desk
			{"sudo apt install", func(r *reader) { r.carry("dist/acceld_*_amd64.deb") }},
		}},
		{name: "status", page: "docs/status.md", before: []stop{
			// Debian has the directory from its package bash-completion.
			{"acceld completion bash", func(r *reader) { r.setUp("mkdir -p /etc/bash_completion.d") }},
		}, after: func(r *reader) { r.tidy("rm -rf /etc/bash_completion.d/acceld /root/acceld-report.txt") }},
		{name: "definitions", page: "docs/definitions.md", before: []stop{
			{"acceld definition validate --host-root", func(r *reader) { otherRoot(r, "/mnt/node17") }},
		}, after: func(r *reader) {
			r.tidy("rm -f /etc/acceld/definitions.d/example-npu.yaml")
			noOtherRoot(r, "/mnt/node17")
		}},
		{name: "vendors", page: "docs/vendors.md"},
		{name: "health", page: "docs/health.md"},
		{name: "sharing", page: "docs/sharing.md"},
		{name: "probes", page: "docs/probes.md"},
		{name: "autoscaling", page: "docs/autoscaling.md"},
		{name: "runtime", page: "docs/runtime.md", before: []stop{
			// it is installed here and does not run
			{"acceld runtime check", func(r *reader) { r.setUp("systemctl start crio") }},
		}, after: func(r *reader) { r.tidy("systemctl stop crio") }},
		{name: "verify", page: "docs/verify.md", before: []stop{
			{"acceld driver verify /lib/modules", func(r *reader) { // as DKMS would have put it there
				r.setUp(`dir=/lib/modules/$(uname -r)/updates/dkms; mkdir -p "$dir"
					for ko in /var/lib/acceld/kmod/*/edu.ko; do if modinfo -F vermagic "$ko" | grep -q "^$(uname -r) "; then cp "$ko" "$dir/"; fi; done; test -s "$dir/edu.ko"`)
			}},
			{"acceld driver verify --kernel", func(r *reader) {
				r.setUp("acceld driver preflight --all --kernel " + r.n.Kernels()[0])
			}},
		}, after: func(r *reader) { r.tidy("rm -rf /lib/modules/$(uname -r)/updates/dkms/edu.ko") }},
		{name: "drivers", page: "docs/drivers.md", before: []stop{
			{"acceld driver build", pipeline},
			{"acceld driver bundle export", onlySigned},
			{"acceld driver upgrade", func(r *reader) {
				stage.Check(r.t, r.s.SourceOf(stage.Within(r.t, soon), r.n.Guest, stage.Version2))
			}},
		}, after: func(r *reader) {
			r.tidy(
				"rm -rf /secrets /etc/acceld/drivers.pub /media/drivers.tar; test ! -e /root/config.before || mv /root/config.before /etc/acceld/config.yaml")
			noOtherRoot(r, "/toolkit")
		}},
		{name: "install", page: "docs/install.md", only: []string{"a-host"}, bare: true, before: []stop{
			{"sudo apt install", func(r *reader) {
				r.must("make packages && cp dist/acceld_1.0.0_amd64.deb .")
				r.carry("acceld_1.0.0_amd64.deb")
			}},
		}},
		{name: "purge", page: "docs/purge.md"},
	}
}

// otherRoot makes a directory in which the root of a host is, as of a mounted disk or of a toolkit's container: this
// host's own, a second time. Nothing that happens to those mounts happens to the host's.
func otherRoot(r *reader, dir string) {
	r.t.Helper()
	r.setUp(`mkdir -p "$1"; mount --rbind / "$1"; mount --make-rslave "$1"`, dir)
}

func noOtherRoot(r *reader, dir string) {
	r.tidy(`if mountpoint -q "$1"; then umount -R -l "$1"; fi; rmdir "$1" 2>/dev/null || true`, dir)
}

// pipeline is what a pipeline has that builds drivers: the configuration that the page has shown, the key that was made
// by its commands, and the root of a toolkit image.
func pipeline(r *reader) {
	r.t.Helper()
	r.setUp("cp /etc/acceld/config.yaml /root/config.before")
	configure(r, "push: true")
	r.carry("drivers.pem")
	r.setUp("mkdir -p /secrets; mv /root/drivers.pem /secrets/")
	otherRoot(r, "/toolkit")
}

// onlySigned gives the host the public key, and the configuration that the page has shown for it.
func onlySigned(r *reader) {
	r.t.Helper()
	r.carry("drivers.pub")
	r.setUp("mv /root/drivers.pub /etc/acceld/")
	configure(r, "keys:")
}

// configure gives the agent the configuration with these words that the page has shown. The registry of this bed has no
// TLS.
func configure(r *reader, words string) {
	r.t.Helper()
	config := strings.Replace(r.page("image:", words), "  - type: oci\n", "  - type: oci\n    plainHTTP: true\n", 1)
	stage.Check(r.t, r.n.WriteFile(stage.Within(r.t, soon), "/etc/acceld/config.yaml", []byte(config), 0o644))
}
