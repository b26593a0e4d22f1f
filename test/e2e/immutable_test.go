package e2e

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/bed"
)

// extension makes an extension image of systemd out of acceld's own files, as image-based distributions get software,
// and merges it: /usr is then a read-only overlay.
const extension = `ext=/var/lib/extensions/acceld
mkdir -p $ext/usr/bin $ext/usr/lib/systemd/system $ext/usr/lib/extension-release.d
mv /usr/bin/acceld /usr/bin/acceld-hook /usr/bin/edu-check /usr/bin/tree $ext/usr/bin/
mv /usr/lib/systemd/system/acceld* $ext/usr/lib/systemd/system/
grep -E '^(ID|VERSION_ID)=' /etc/os-release > $ext/usr/lib/extension-release.d/extension-release.acceld
systemd-sysext merge
systemctl daemon-reload
test "$(findmnt -n -o FSTYPE /usr)" = overlay && ! touch /usr/x 2>/dev/null && command -v acceld`

// TestImmutable is a host without compiler, headers and user space on which nothing can be written into /usr: one that
// is mounted read-only, and one of which acceld is a merged extension.
func TestImmutable(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true, Engine: vm.Containerd})
	g := n.Guest
	image, err := s.Root(t.Context(), n.Guest, "edu-root:"+stage.Version, stage.Version, stage.Version)
	stage.Check(t, err)
	app, err := s.App(t.Context(), n)
	stage.Check(t, err)
	sh(t, g, `systemctl enable -q --now containerd; until ctr version >/dev/null 2>&1; do sleep 0.2; done
ctr images pull --local --plain-http --snapshotter native "$1" >/dev/null`, app)
	stage.Check(t, s.Units(t.Context(), g, ""))
	stage.Check(t, g.Put(t.Context(), s.Program("tree"), "/usr/bin/tree", 0o755))
	stage.Check(t, s.Whole(t.Context(), g, image, stage.Version))
	sh(t, g, nothingToBuildWith)
	for _, c := range []struct{ name, prepare, after string }{
		{
			"/usr is read-only",
			"mount --bind /usr /usr; mount -o remount,bind,ro /usr; ! touch /usr/x 2>/dev/null && command -v acceld",
			"umount -l /usr",
		},
		{
			"acceld is an extension that is merged into /usr", extension,
			"systemd-sysext unmerge; test ! -e /usr/bin/acceld",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			sh(t, g, c.prepare)
			before := snapshot(t, g)
			timed(t, "units enabled -> ready", func() {
				stage.Check(t, s.Enable(t.Context(), g))
				serves(t, g, stage.Version)
			})
			logDurations(t, g)
			out := sh(t, g, `ctr run --rm --snapshotter native --device qemu.org/edu=0000:01:00.0 "$1" new /usr/bin/edu-app`, app)
			if !strings.Contains(out, "edu-app: library "+stage.Version) || !strings.Contains(out, "10! = 3628800") {
				t.Errorf("a container said %s", out)
			}
			if out := sh(t, g, "acceld exec qemu-edu -- edu-smi"); strings.Count(out, "EDU-0000") != 2 {
				t.Errorf("acceld exec said %s", out)
			}
			purged(t, g, before)
			sh(t, g, c.after)
		})
	}
}
