package disk

import (
	"strings"
	"testing"
)

func TestLoadOrder(t *testing.T) {
	dep := "kernel/a/virtio-blk.ko: kernel/a/ring.ko kernel/a/virtio.ko\nkernel/a/ring.ko: kernel/a/virtio.ko\nkernel/a/virtio.ko:\n"
	order, err := loadOrder(dep, "", []string{"virtio_blk", "ring"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, " "),
		"kernel/a/virtio.ko kernel/a/ring.ko kernel/a/virtio-blk.ko"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := loadOrder(dep, "", []string{"absent"}); err == nil {
		t.Error("an absent module was accepted")
	}
	dep, builtin := "kernel/a/virtio-blk.ko.xz: kernel/a/ring.ko.xz\nkernel/a/ring.ko.xz:\n", "kernel/a/virtio-pci.ko\n"
	if order, err = loadOrder(dep, builtin, []string{"virtio_pci", "virtio_blk"}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, " "), "kernel/a/ring.ko.xz kernel/a/virtio-blk.ko.xz"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
