package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/disk"
	"github.com/acceld/acceld/test/vm/initramfs"
	"github.com/acceld/acceld/test/vm/seed"
)

// snapshotRecipe is raised when snapshots must be made again for a reason that no hashed input shows.
const snapshotRecipe = "2"

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
	snapshot, n, err := b.snapshot(ctx, kind, o)
	if err != nil {
		return nil, err
	}
	if n == nil {
		return b.resume(ctx, kind, o, snapshot)
	}
	if err := n.plugAll(ctx, o); err != nil {
		n.Stop()
		return nil, err
	}
	return n, nil
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
	return poll(ctx, "the kubelet's heartbeat", func() (bool, error) {
		lease, err := n.Client().Lease(ctx, corev1.NamespaceNodeLease, n.Name())
		return err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(since), err
	})
}

// poll asks until it is done; the error is what it said last.
func poll(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for %s: %w (%v)", what, ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// snapshot returns the folder of a saved guest. When the cache has none, it boots one and saves it, and returns the
// guest too, which runs on without accelerators.
func (b *Bed) snapshot(ctx context.Context, kind seed.Kind, o Options) (dir string, n *Node, err error) {
	name, key, err := b.snapshotKey(kind, o)
	if err != nil {
		return "", nil, err
	}
	dir, err = b.seat.Entry(ctx, name, key, func(tmp string) (err error) {
		if n, err = b.boot(ctx, kind, Options{Kernel: o.Kernel, MemoryMiB: o.MemoryMiB, Engine: o.Engine}); err != nil {
			return err
		}
		return b.log.Do("saving the "+string(kind)+" for the next start", func() error {
			if !o.NoWarmUp {
				if err := n.warmUp(ctx); err != nil {
					return err
				}
			}
			return n.save(ctx, tmp)
		})
	})
	if err != nil && n != nil {
		n.Stop()
		n = nil
	}
	return dir, n, err
}

func (b *Bed) snapshotKey(kind seed.Kind, o Options) (name string, key *cache.Key, err error) {
	files, err := b.seedFiles(kind, o.Engine, seed.Members()[0])
	if err != nil {
		return "", nil, err
	}
	script, err := seed.Init()
	if err != nil {
		return "", nil, err
	}
	hash := &hasher{}
	if err := initramfs.Write(hash, files); err != nil {
		return "", nil, err
	}
	name = "snapshot-" + string(kind)
	if o.Engine != seed.CRIO {
		name += "-" + string(o.Engine)
	}
	if o.NoWarmUp && kind == seed.Node {
		name += "-cold"
	}
	fingerprint, err := b.fingerprint()
	if err != nil {
		return "", nil, err
	}
	return name, cache.NewKey(snapshotRecipe, fingerprint, o.Kernel, strconv.Itoa(o.MemoryMiB),
		commandLine(kind, ""), hash.String(), string(script)), nil
}

// warmUp runs a pod once, so that the images that every pod needs and the paths that they take are in the snapshot.
func (n *Node) warmUp(ctx context.Context) error {
	if n.plane == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	pods, name := cluster.Core("pods", "default"), "warm-up"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: name, Image: n.Image("bed/busybox:1"), Command: []string{"true"}}},
	}}
	if err := n.waitServiceAccount(ctx); err != nil {
		return err
	}
	if err := n.Client().Create(ctx, pods, pod); err != nil {
		return fmt.Errorf("cannot make a pod: %w", err)
	}
	if err := n.WaitPod(ctx, "default", name, corev1.PodSucceeded); err != nil {
		return err
	}
	if err := n.Client().Delete(ctx, pods, name); err != nil {
		return fmt.Errorf("cannot delete a pod: %w", err)
	}
	return poll(ctx, "the end of a pod", func() (bool, error) {
		err := n.Client().Get(ctx, pods, name, pod)
		return apierrors.IsNotFound(err), err
	})
}

// waitServiceAccount waits for the controller manager's first works, without which no pod is admitted.
func (n *Node) waitServiceAccount(ctx context.Context) error {
	return poll(ctx, "the default service account", func() (bool, error) {
		err := n.Client().Get(ctx, cluster.Core("serviceaccounts", "default"), "default", &corev1.ServiceAccount{})
		return err == nil, err
	})
}

// save writes the guest and its cluster to a folder: memory and devices in "state", the disk, etcd's data, and the
// initramfs, which must be the same when the guest goes on. The guest is paused meanwhile, and then runs on.
func (n *Node) save(ctx context.Context, dir string) error {
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
	if n.plane != nil {
		if err := n.plane.CopyData(filepath.Join(dir, "etcd")); err != nil {
			return err
		}
	}
	kept := map[string]string{n.config.Initrd: "initrd"}
	if n.kind != seed.Light {
		kept[n.config.Disk] = "root.qcow2"
	}
	for from, to := range kept {
		if err := copyFile(from, filepath.Join(dir, to)); err != nil {
			return fmt.Errorf("cannot keep the guest's files: %w", err)
		}
	}
	return n.proceed(ctx)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
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
	if err := n.proceed(ctx); err != nil {
		return err
	}
	// The guest's connections to the API server lead to one that is gone: ending them makes the kubelet connect again
	// instead of waiting for a time-out.
	if _, err := n.Sh(ctx, `ss -K dst "$1" >/dev/null 2>&1 || true`, seed.HostIP); err != nil {
		return err
	}
	if err := n.plugAll(ctx, o); err != nil || n.plane == nil {
		return err
	}
	return n.waitUp(ctx, since)
}

// proceed lets the processors of a guest run that stood still, and sets its clock, which stood still too.
func (n *Node) proceed(ctx context.Context) error {
	if err := n.machine.Continue(ctx); err != nil {
		return err
	}
	if err := n.connect(ctx, alreadyUp); err != nil {
		return err
	}
	now := strconv.FormatFloat(float64(time.Now().UnixMilli())/1000, 'f', 3, 64)
	r, err := n.Sh(ctx, `date -u -s "@$1" >/dev/null`, now)
	if err == nil && !r.OK() {
		err = fmt.Errorf("cannot step the guest's clock: %s", r.Stderr)
	}
	return err
}

func (n *Node) plugAll(ctx context.Context, o Options) error {
	for slot := range o.Accelerators {
		if err := n.Plug(ctx, slot); err != nil {
			return err
		}
	}
	return nil
}

// Prepare makes the snapshots that most scenarios go on from.
func (b *Bed) Prepare(ctx context.Context) error {
	for _, kind := range []seed.Kind{seed.Node, seed.Host, seed.Light} {
		_, n, err := b.snapshot(ctx, kind, b.withDefaults(Options{}))
		if err != nil {
			return err
		}
		if n != nil {
			n.Stop()
		}
	}
	return nil
}
