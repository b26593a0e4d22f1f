package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sync/errgroup"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/seed"
	"github.com/acceld/acceld/test/vm/supply"
)

// node is the machine of the second half, with its bed.
type node struct {
	*bed.Node
	bed *bed.Bed
}

func (n *node) stop() {
	if n.Node != nil {
		n.Node.Stop()
	}
	if n.bed != nil {
		n.bed.Close()
	}
}

// beside makes the second half's node while the first half runs. Its parts are built with what the first half leaves of
// the processors, and it boots once a container has computed there: two machines that start at once delay the first
// result and end no earlier.
func (d *demo) beside(ctx context.Context, computed <-chan struct{}, n *node) (err error) {
	if _, err := supply.Make(ctx, d.log, joined()); err != nil {
		return err
	}
	if err := wait(ctx, computed); err != nil {
		return err
	}
	if n.bed, err = bed.OpenLog(ctx, d.log, joined()); err != nil {
		return err
	}
	both, making := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		n.Node, err = n.bed.StartNode(making, bed.Options{Accelerators: 2, Engine: seed.Containerd, NoWarmUp: true})
		return err
	})
	use := func() {}
	both.Go(func() (err error) { // a boot leaves it a processor, and needs no kubectl
		use, err = n.bed.Build(making, parts.Kubectl)
		return err
	})
	both.Go(func() error {
		return d.log.Do("making the image of acceld", func() error {
			_, err := d.stage.Image(making, n.bed)
			return err
		})
	})
	err = both.Wait()
	use()
	return err
}

func wait(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cluster is the second half.
func (d *demo) cluster(ctx context.Context, n *bed.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	d.title("A node of a cluster, with two accelerators and no driver")
	if err := d.shell(ctx, n.Guest, bare); err != nil {
		return err
	}
	if err := d.stage.Store(ctx, n.Guest, stage.Version); err != nil {
		return err
	}
	d.title("kubectl apply -k packaging/manifests")
	began := time.Now()
	if err := d.stage.Deploy(ctx, n); err != nil {
		return err
	}
	if err := d.ready(ctx, n); err != nil {
		return err
	}
	d.say("schedulable %.1f s after the DaemonSet was applied", time.Since(began).Seconds())
	if err := d.compute(ctx, n); err != nil {
		return err
	}
	d.say("done; everything is taken down")
	return nil
}

// ready prints each change of state until the kind is ready.
func (d *demo) ready(ctx context.Context, n *bed.Node) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, in := io.Pipe()
	go d.follow(ctx, n, in)
	go d.transitions(out)
	_, err := stage.WaitMachine(ctx, n.Guest, "the accelerators to be ready", stage.InState(accel.Ready))
	return err
}

// follow copies the agent's log, from its first line, as soon as its pod runs.
func (d *demo) follow(ctx context.Context, n *bed.Node, log io.Writer) {
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, n.Program("kubectl"), "--kubeconfig", n.Kubeconfig(), "-n", "acceld-system",
			"logs", "-f", "ds/acceld")
		cmd.Stdout = log
		if cmd.Run() == nil {
			return
		}
		select { // the container is not there yet
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// compute runs a pod on one accelerator and shows what an operator sees.
func (d *demo) compute(ctx context.Context, n *bed.Node) error {
	image, err := d.stage.Workload(ctx, n)
	if err != nil {
		return err
	}
	d.title("A pod requests %s: 1 and computes, expecting to see exactly one device", stage.Resource)
	if err := n.Apply(ctx, stage.Pod("compute", image, 1, "-expect", "1")); err != nil {
		return err
	}
	// The pod has succeeded some seconds later, when the kubelet has taken its network down.
	var end *corev1.ContainerStateTerminated
	if err := n.WaitPodUntil(ctx, "default", "compute", "at its end", func(p *corev1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			end = c.State.Terminated
		}
		return end != nil
	}); err != nil {
		return err
	}
	log, err := n.PodLog(ctx, "default", "compute")
	if err != nil {
		return err
	}
	d.show(log)
	if end.ExitCode != 0 {
		return fmt.Errorf("the pod did not compute: exit status %d", end.ExitCode)
	}
	var node corev1.Node
	if err := n.Client().Get(ctx, cluster.Core("nodes", ""), bed.NodeName, &node); err != nil {
		return err
	}
	d.title("Labels of the node")
	var labels []string
	for k, v := range node.Labels {
		if strings.HasPrefix(k, "acceld.dev/") || strings.HasPrefix(k, "feature.node.kubernetes.io/") {
			labels = append(labels, k+"="+v)
		}
	}
	slices.Sort(labels)
	d.show(strings.Join(labels, "\n"))
	status, err := n.Kubectl(ctx, nil, "-n", "acceld-system", "exec", "ds/acceld", "--", "/acceld", "status",
		"--host-root", "/host")
	if err != nil {
		return err
	}
	d.title("acceld status")
	d.show(status)
	return nil
}
