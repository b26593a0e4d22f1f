// Command demo shows the whole of acceld on real parts: it boots a node with two accelerators and no driver, deploys the
// DaemonSet, prints each transition as it happens and ends with a pod that computed on its own device. `make demo`
// starts it; it needs root, installs what it needs and leaves nothing running.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo prints with the time since it began.
type demo struct {
	start   time.Time
	kubectl string
}

func (d demo) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

func run(ctx context.Context) error {
	d := demo{start: time.Now()}
	d.say("preparing the test bed (the first time it builds Kubernetes and makes a disk: about a quarter of an hour)")
	b, err := bed.Open(ctx, os.Stdout)
	if err != nil {
		return err
	}
	defer b.Close()
	d.kubectl = b.Program("kubectl")
	dir, err := os.MkdirTemp("", "acceld-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d.say("building acceld")
	s, err := stage.New(ctx, dir)
	if err != nil {
		return err
	}
	d.say("booting a node with two accelerators and no driver")
	n, err := b.StartNode(ctx, bed.Options{Accelerators: 2, FreshBoot: true})
	if err != nil {
		return err
	}
	defer n.Stop()
	d.say("the node is Ready; lsmod and /dev know nothing of the accelerators:")
	if err := show(ctx, n, "lspci -nnk -d 1234:11e8; ls /dev/edu* 2>&1; lsmod | grep -w edu || echo 'module edu: not loaded'"); err != nil {
		return err
	}
	if err := s.Source(ctx, n.Guest); err != nil {
		return err
	}
	d.say("deploying the DaemonSet (the driver's source is in %s, as a source package puts it)", stage.SourceDir)
	began := time.Now()
	if err := s.Deploy(ctx, n); err != nil {
		return err
	}
	if err := d.transitions(ctx, n); err != nil {
		return err
	}
	d.say("schedulable %.1f s after the DaemonSet was applied", time.Since(began).Seconds())
	return d.compute(ctx, s, n)
}

// transitions prints each change of state from the agent's log until the kind is ready.
func (d demo) transitions(ctx context.Context, n *bed.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	ready := make(chan error, 1)
	go func() {
		_, err := stage.WaitMachine(ctx, n.Guest, "the accelerators to be ready", stage.InState(accel.Ready))
		if err == nil {
			time.Sleep(time.Second) // for the last line of the log to arrive
		}
		ready <- err
	}()
	change := regexp.MustCompile(`msg="state changed" kind=(\S+) from=(\S+) to=(\S+) took=(\S+)`)
	failure := regexp.MustCompile(`msg="step failed".* reason=(\S+) message=("[^"]*"|\S+)`)
	lines := make(chan string)
	go d.follow(ctx, n, lines)
	for {
		select {
		case line := <-lines:
			if m := change.FindStringSubmatch(line); m != nil {
				d.say("  %s: %s -> %s (after %s)", m[1], m[2], m[3], m[4])
			} else if m := failure.FindStringSubmatch(line); m != nil {
				d.say("  %s: %s", m[1], m[2])
			}
		case err := <-ready:
			return err
		}
	}
}

// follow sends the agent's log, from its first line, as soon as its pod runs.
func (d demo) follow(ctx context.Context, n *bed.Node, lines chan<- string) {
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, d.kubectl, "--kubeconfig", n.Kubeconfig(), "-n", "acceld-system", "logs", "-f", "ds/acceld")
		out, err := cmd.StdoutPipe()
		if err != nil || cmd.Start() != nil {
			return
		}
		for scan := bufio.NewScanner(out); scan.Scan(); {
			select {
			case lines <- scan.Text():
			case <-ctx.Done():
			}
		}
		if cmd.Wait() == nil {
			return
		}
		select { // the container is not there yet
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// compute runs a pod on one accelerator and shows what an operator sees.
func (d demo) compute(ctx context.Context, s *stage.Stage, n *bed.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	image, err := s.Workload(ctx, n)
	if err != nil {
		return err
	}
	d.say("a pod requests %s: 1 and computes, expecting to see exactly one device", stage.Resource)
	if err := n.Apply(ctx, stage.Pod("compute", image, 1, "-expect", "1")); err != nil {
		return err
	}
	if err := n.WaitPod(ctx, "default", "compute", corev1.PodSucceeded); err != nil {
		return err
	}
	log, err := n.PodLog(ctx, "default", "compute")
	if err != nil {
		return err
	}
	status, err := n.Kubectl(ctx, nil, "-n", "acceld-system", "exec", "ds/acceld", "--", "/acceld", "status", "--host-root", "/host")
	if err != nil {
		return err
	}
	node, err := n.Kube().CoreV1().Nodes().Get(ctx, bed.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	fmt.Println("\nlabels of the node")
	var labels []string
	for k, v := range node.Labels {
		if strings.HasPrefix(k, "acceld.dev/") || strings.HasPrefix(k, "feature.node.kubernetes.io/") {
			labels = append(labels, "  "+k+"="+v)
		}
	}
	slices.Sort(labels)
	fmt.Println(strings.Join(labels, "\n"))
	fmt.Printf("\nacceld status\n%s\nlog of the pod\n%s\n", indent(status), indent(log))
	d.say("done; everything is taken down")
	return nil
}

// show prints what a fixed script says in the guest.
func show(ctx context.Context, n *bed.Node, script string) error {
	res, err := n.Sh(ctx, script)
	if err != nil {
		return err
	}
	fmt.Print(indent(res.Stdout))
	return nil
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ") + "\n"
}
