package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/disk"
	"github.com/acceld/acceld/test/vm/initramfs"
	"github.com/acceld/acceld/test/vm/seed"
)

// snapshotRecipe is raised when snapshots must be made again for a reason that no hashed input shows.
const snapshotRecipe = "1"

// StartNode starts a node, and its cluster unless the options say otherwise, and returns when the node is ready. It
// goes on from a snapshot of a ready node, which it makes when there is none.
func (b *Bed) StartNode(ctx context.Context, o Options) (*Node, error) {
	if o.NoKubernetes {
		return b.start(ctx, seed.Host, o)
	}
	return b.start(ctx, seed.Node, o)
}

// StartLight starts a guest that has Debian's programs, busybox for an init, and no memory of its writes.
func (b *Bed) StartLight(ctx context.Context, o Options) (*Guest, error) {
	n, err := b.start(ctx, seed.Light, o)
	if err != nil {
		return nil, err
	}
	return n.Guest, nil
}

func (b *Bed) start(ctx context.Context, kind seed.Kind, o Options) (*Node, error) {
	leave, err := b.enter(ctx, 1)
	if err != nil {
		return nil, err
	}
	n, err := b.startIn(ctx, kind, o)
	if err != nil {
		leave()
		return nil, err
	}
	n.leave = leave
	return n, nil
}

// startIn starts a guest in a place that somebody holds.
func (b *Bed) startIn(ctx context.Context, kind seed.Kind, o Options) (*Node, error) {
	o = b.withDefaults(o)
	if err := b.check(o); err != nil {
		return nil, err
	}
	if o.Kernel == Later {
		var err error
		if o.later, err = disk.MakeLater(ctx, b.cache, b.log); err != nil {
			return nil, err
		}
	}
	if o.FreshBoot {
		return b.boot(ctx, kind, o)
	}
	snapshot, err := b.snapshot(ctx, kind, o)
	if err != nil {
		return nil, err
	}
	return b.resume(ctx, kind, o, snapshot)
}

// boot starts a guest from power-on.
func (b *Bed) boot(ctx context.Context, kind seed.Kind, o Options) (_ *Node, err error) {
	g, err := b.newGuest(kind, o)
	if err != nil {
		return nil, err
	}
	n := &Node{Guest: g}
	defer func() {
		if err != nil {
			n.Stop()
		}
	}()
	if err := g.makeDisk(ctx, b.supply.Debian.Root(), "raw"); err != nil {
		return nil, err
	}
	return n, b.log.Do("booting a "+string(kind), func() error {
		both, starting := errgroup.WithContext(ctx)
		both.Go(func() error { return g.boot(starting, o) })
		both.Go(func() error { return n.startPlane(starting) })
		if err := both.Wait(); err != nil {
			return err
		}
		return n.waitUp(ctx, time.Time{})
	})
}

func (n *Node) startPlane(ctx context.Context) (err error) {
	if n.kind != seed.Node {
		return nil
	}
	n.plane, err = cluster.Start(ctx, cluster.Config{
		Dir: n.file("plane"), Port: n.bed.ports.API, PKI: cluster.OpenPKI(n.bed.keys.dir),
		Program: n.bed.Program, Starter: n.bed.starter, Dial: n.dialCluster,
	})
	return err
}

// waitUp waits until systemd has finished and, in a cluster, the node is ready by its own word after since.
func (n *Node) waitUp(ctx context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	switch n.kind {
	case seed.Light:
		return nil
	case seed.Host:
		// It ends with an error when a unit has failed, which is for the scenario to judge.
		_, err := n.Run(ctx, "systemctl", "is-system-running", "--wait")
		return err
	}
	if err := n.waitHeartbeat(ctx, since); err != nil {
		return err
	}
	return n.WaitNode(ctx, "the node is ready", func(node *corev1.Node) bool {
		for _, t := range node.Spec.Taints {
			if strings.HasPrefix(t.Key, "node.kubernetes.io/") {
				return false
			}
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
}

// waitHeartbeat waits until the kubelet has renewed its lease: the node's object in a restored etcd says "ready" long
// before the kubelet has said so again.
func (n *Node) waitHeartbeat(ctx context.Context, since time.Time) error {
	for {
		lease, err := n.Kube().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.Name(),
			metav1.GetOptions{})
		if err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(since) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the kubelet's heartbeat: %w (%v)", ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// snapshot returns the folder of a saved guest, which it makes when the cache has none.
func (b *Bed) snapshot(ctx context.Context, kind seed.Kind, o Options) (string, error) {
	files, err := b.seedFiles(kind, o.Engine, seed.Members()[0])
	if err != nil {
		return "", err
	}
	script, err := seed.Init()
	if err != nil {
		return "", err
	}
	hash := &hasher{}
	if err := initramfs.Write(hash, files); err != nil {
		return "", err
	}
	name := "snapshot-" + string(kind)
	if o.Engine != seed.CRIO {
		name += "-" + string(o.Engine)
	}
	fingerprint, err := b.fingerprint()
	if err != nil {
		return "", err
	}
	key := cache.NewKey(snapshotRecipe, fingerprint, o.Kernel, strconv.Itoa(o.MemoryMiB),
		commandLine(kind, ""), hash.String(), string(script))
	return b.seat.Entry(ctx, name, key, func(tmp string) error {
		return b.log.Do("making a snapshot of a ready "+string(kind), func() error {
			n, err := b.boot(ctx, kind, Options{Kernel: o.Kernel, MemoryMiB: o.MemoryMiB, Engine: o.Engine})
			if err != nil {
				return err
			}
			defer n.Stop()
			return n.save(ctx, tmp)
		})
	})
}

// warmUp runs a pod once, so that the images that every pod needs and the paths that they take are in the snapshot.
func (n *Node) warmUp(ctx context.Context) error {
	if n.plane == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	manifest := []byte(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: warm-up, namespace: default}, spec: {
restartPolicy: Never, containers: [{name: warm-up, image: %q, command: ["true"]}]}}`, n.Image("bed/busybox:1")))
	if err := n.waitServiceAccount(ctx); err != nil {
		return err
	}
	if err := n.Apply(ctx, manifest); err != nil {
		return err
	}
	if err := n.WaitPod(ctx, "default", "warm-up", corev1.PodSucceeded); err != nil {
		return err
	}
	return n.Delete(ctx, manifest)
}

// waitServiceAccount waits for the controller manager's first works, without which no pod is admitted.
func (n *Node) waitServiceAccount(ctx context.Context) error {
	for {
		_, err := n.Kube().CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the default service account: %w (%v)", ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// save stops the guest and its cluster and keeps them: memory and devices in "state", the disk, etcd's data, and the
// initramfs, which must be the same when the guest goes on.
func (n *Node) save(ctx context.Context, dir string) error {
	if err := n.warmUp(ctx); err != nil {
		return err
	}
	if _, err := n.Run(ctx, "sync"); err != nil {
		return err
	}
	n.disconnect()
	if err := n.machine.Pause(ctx); err != nil {
		return err
	}
	if err := n.machine.Save(ctx, filepath.Join(dir, "state")); err != nil {
		return err
	}
	n.machine.Stop()
	if n.plane != nil {
		n.plane.Stop()
		if err := copyTree(n.file("plane/etcd"), filepath.Join(dir, "etcd")); err != nil {
			return err
		}
	}
	kept := map[string]string{n.config.Initrd: "initrd"}
	if n.kind != seed.Light {
		kept[n.config.Disk] = "root.qcow2"
	}
	for from, to := range kept {
		if err := os.Rename(from, filepath.Join(dir, to)); err != nil {
			return fmt.Errorf("cannot keep the guest's files: %w", err)
		}
	}
	return nil
}

// resume goes on from a snapshot.
func (b *Bed) resume(ctx context.Context, kind seed.Kind, o Options, snapshot string) (_ *Node, err error) {
	g, err := b.newGuest(kind, o)
	if err != nil {
		return nil, err
	}
	n := &Node{Guest: g}
	defer func() {
		if err != nil {
			n.Stop()
		}
	}()
	if err := g.makeDisk(ctx, filepath.Join(snapshot, "root.qcow2"), "qcow2"); err != nil {
		return nil, err
	}
	g.config.Initrd, g.config.State = filepath.Join(snapshot, "initrd"), filepath.Join(snapshot, "state")
	return n, b.log.Do("starting a "+string(kind)+" from its snapshot", func() error {
		both, starting := errgroup.WithContext(ctx)
		both.Go(func() error { return g.powerOn(starting) })
		both.Go(func() error {
			if kind != seed.Node {
				return nil
			}
			if err := copyTree(filepath.Join(snapshot, "etcd"), n.file("plane/etcd")); err != nil {
				return err
			}
			return n.startPlane(starting)
		})
		if err := both.Wait(); err != nil {
			return err
		}
		return n.wake(ctx, o)
	})
}

// wake lets the processors run once the API server is there, so that the kubelet finds it at its first try and has
// nothing to back off from.
func (n *Node) wake(ctx context.Context, o Options) error {
	since := time.Now()
	if err := n.machine.Continue(ctx); err != nil {
		return err
	}
	if err := n.connect(ctx); err != nil {
		return err
	}
	// The clock stood still while the guest lay on disk, and its connections to the API server lead to one that is
	// gone: ending them makes the kubelet connect again instead of waiting for a time-out.
	now := strconv.FormatFloat(float64(time.Now().UnixMilli())/1000, 'f', 3, 64)
	r, err := n.Sh(ctx, `date -u -s "@$1" >/dev/null; ss -K dst "$2" >/dev/null 2>&1 || true`, now, seed.HostIP)
	if err == nil && !r.OK() {
		err = fmt.Errorf("cannot step the guest's clock: %s", r.Stderr)
	}
	if err != nil {
		return err
	}
	for slot := range o.Accelerators {
		if err := n.Plug(ctx, slot); err != nil {
			return err
		}
	}
	if n.plane == nil {
		return nil
	}
	return n.waitUp(ctx, since)
}

// Prepare makes the snapshots that most scenarios go on from.
func (b *Bed) Prepare(ctx context.Context) error {
	for _, kind := range []seed.Kind{seed.Node, seed.Host, seed.Light} {
		if _, err := b.snapshot(ctx, kind, b.withDefaults(Options{})); err != nil {
			return err
		}
	}
	return nil
}
