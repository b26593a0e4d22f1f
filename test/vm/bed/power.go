package bed

import (
	"context"
	"fmt"
	"os"

	"github.com/acceld/acceld/test/vm/nbd"
)

// cachedDisk is a disk whose write cache goes with the power.
type cachedDisk struct {
	*nbd.Disk
	base   *os.File
	server *nbd.Server
}

func (d *cachedDisk) close() {
	d.server.Close()
	d.base.Close()
}

// serveDisk gives the guest such a disk, with Debian on it.
func (g *Guest) serveDisk() error {
	base, err := os.Open(g.bed.supply.Debian.Root())
	if err != nil {
		return fmt.Errorf("cannot open the guests' disk: %w", err)
	}
	info, err := base.Stat()
	if err != nil {
		base.Close()
		return fmt.Errorf("cannot look at the guests' disk: %w", err)
	}
	d := nbd.New(info.Size(), nbd.NewContent(base))
	g.config.Disk, g.config.DiskServed = g.file("root.sock"), true
	server, err := d.Serve(g.config.Disk)
	if err != nil {
		base.Close()
		return err
	}
	g.disk = &cachedDisk{d, base, server}
	return nil
}

// loseCache takes the power away, QEMU with it, and everything that the guest has not flushed; then it boots again.
func (g *Guest) loseCache(ctx context.Context, r Reboot) error {
	lost, err := g.disk.Off(func() bool { return false })
	if err != nil {
		return err
	}
	g.bed.log.Say("power cut: of the disk's cache %d blocks of 4 KiB are lost", lost)
	g.disconnect()
	g.machine.Stop()
	g.disk.On()
	g.config.State = ""
	return g.rise(ctx, r.NetworkCut)
}
