package faults

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// Test24_PurgeAfterEdit: somebody has edited a file of acceld. It stays and is named, everything else goes; when it is
// settled, the next purge finishes.
func Test24_PurgeAfterEdit(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.must(c.g.Put(t.Context(), c.s.Program("tree"), "/usr/bin/tree", 0o755))
	files := func() string {
		text, err := stage.Files(c.within(2*soon), c.g)
		c.must(err)
		return text
	}
	before := files()
	c.store(stage.Version)
	c.start()
	c.await("agent started", soon, healthy(1))
	c.sh("echo '# mine' >> /var/run/cdi/qemu.org-edu.json")
	c.until("the agent has put it right", `! grep -q mine /var/run/cdi/qemu.org-edu.json`)
	c.halt()
	c.sh("echo '# mine' >> /var/run/cdi/qemu.org-edu.json")
	said, status := c.says("acceld purge")
	t.Logf("acceld purge:\n%s", said)
	if status != 1 || !strings.Contains(said, string(accel.FileChanged)) ||
		!strings.Contains(said, "qemu.org-edu.json") {
		t.Errorf("status %d, want 1 and the file with its reason", status)
	}
	c.sh("grep -q mine /var/run/cdi/qemu.org-edu.json; test ! -d /sys/module/edu")
	if diff := stage.Unlike(before, files(), "/run/cdi", "/run/acceld", "/var/lib/acceld"); diff != "" {
		t.Errorf("more than the edited file is not as it was:\n%s", diff)
	}
	c.sh("rm /var/run/cdi/qemu.org-edu.json; acceld purge")
	if diff := stage.Unlike(before, files()); diff != "" {
		t.Errorf("the host is not as it was:\n%s", diff)
	}
}
