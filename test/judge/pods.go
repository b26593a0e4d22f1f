package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/acceld/acceld/test/vm/clientset"
)

// namespace is where pods run.
const namespace = "default"

func (c *court) client() kubernetes.Interface { return clientset.Of(c.Node) }

// offers returns how many devices the cluster may give away: the node's allocatable resource, or the devices in the
// subject's ResourceSlices that no taint holds back.
func (c *court) offers(ctx context.Context) (int, error) {
	if c.subject.Resource != "" {
		node, err := c.client().CoreV1().Nodes().Get(ctx, c.Name(), metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		q := node.Status.Allocatable[corev1.ResourceName(c.subject.Resource)]
		return int(q.Value()), nil
	}
	list, err := c.client().ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return countDevices(list.Items, c.subject.Driver), nil
}

// countDevices counts the devices of a driver in the newest generation of each pool.
func countDevices(slices []resourcev1.ResourceSlice, driver string) (n int) {
	newest := map[string]int64{}
	for _, s := range slices {
		if s.Spec.Driver == driver {
			newest[s.Spec.Pool.Name] = max(newest[s.Spec.Pool.Name], s.Spec.Pool.Generation)
		}
	}
	for _, s := range slices {
		if s.Spec.Driver != driver || s.Spec.Pool.Generation != newest[s.Spec.Pool.Name] {
			continue
		}
		for _, d := range s.Spec.Devices {
			if !heldBack(d) {
				n++
			}
		}
	}
	return n
}

func heldBack(d resourcev1.Device) bool {
	for _, t := range d.Taints {
		if t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute {
			return true
		}
	}
	return false
}

func (c *court) waitOffered(ctx context.Context, want int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	last := -1
	for {
		got, err := c.offers(ctx)
		if err == nil {
			if last = got; got == want {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d devices are offered after %s, want %d", last, within, want)
		case <-time.After(time.Second):
		}
	}
}

// pod starts a pod with some devices and returns its name.
func (c *court) pod(ctx context.Context, devices int, script string) (string, error) {
	c.pods++
	name := fmt.Sprintf("judged-%d", c.pods)
	return name, c.create(ctx, name, devices, script)
}

// create starts a pod. Its script is what the subject's check does, and then something.
func (c *court) create(ctx context.Context, name string, devices int, script string) error {
	one := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "judged"}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &one,
			Containers: []corev1.Container{{
				Name: "judged", Image: c.image, Args: []string{"set -e\n" + c.subject.Pod.Check + "\n" + script},
				Env: []corev1.EnvVar{{Name: "DEVICES", Value: fmt.Sprint(devices)}},
			}},
		},
	}
	container := &p.Spec.Containers[0]
	if r := c.subject.Resource; r != "" {
		container.Resources.Limits = corev1.ResourceList{corev1.ResourceName(r): *resource.NewQuantity(int64(devices),
			resource.DecimalSI)}
	} else if err := c.claimFor(ctx, p, devices); err != nil {
		return err
	}
	_, err := c.client().CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
	return err
}

// claimFor adds a claim of a template for so many devices to a pod.
func (c *court) claimFor(ctx context.Context, p *corev1.Pod, devices int) error {
	name := fmt.Sprintf("judged-%d", devices)
	template := &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "device", Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: c.subject.DeviceClass, AllocationMode: resourcev1.DeviceAllocationModeExactCount,
				Count: int64(devices),
			}}},
		}}},
	}
	_, err := c.client().ResourceV1().ResourceClaimTemplates(namespace).Create(ctx, template, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: &name}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	return nil
}

// errRefused is the error of a pod that the kubelet did not take; it is never tried again.
var errRefused = errors.New("refused")

// ended waits for a pod to end, and fails unless it succeeded.
func (c *court) ended(ctx context.Context, name string, within time.Duration) error {
	return c.await(ctx, name, within, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
}

// await waits until a pod is as wanted, and fails when it has failed or ended before.
func (c *court) await(ctx context.Context, name string, within time.Duration, ok func(*corev1.Pod) bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	phase := corev1.PodUnknown
	for {
		p, err := c.client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err): // the API server is asked again
		case err != nil:
			return fmt.Errorf("pod %s is %s after %s: %w", name, phase, within, err)
		case ok(p):
			return nil
		case p.Status.Phase == corev1.PodFailed && len(p.Status.ContainerStatuses) == 0:
			return fmt.Errorf("pod %s: %w: %s", name, errRefused, tail(p.Status.Reason+" "+p.Status.Message))
		case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
			log, _ := c.PodLog(ctx, namespace, name) // what there is of it
			return fmt.Errorf("pod %s ended as %s: %s", name, p.Status.Phase, tail(p.Status.Message+log))
		default:
			phase = p.Status.Phase
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pod %s is %s after %s", name, phase, within)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// compute runs a pod with all devices but those that are missing.
func (c *court) compute(ctx context.Context, s Step) error {
	name, err := c.pod(ctx, c.devices-s.Missing, "")
	if err != nil {
		return err
	}
	return c.ended(ctx, name, s.within())
}

// hold starts a pod that keeps a device.
func (c *court) hold(ctx context.Context, s Step) error {
	name, err := c.pod(ctx, 1, "sleep 86400")
	if err != nil {
		return err
	}
	c.holder = name
	return c.await(ctx, name, s.within(), running)
}

// held holds that the pod of hold still runs, and that its container was never started again.
func (c *court) held(ctx context.Context, s Step) error {
	return c.await(ctx, c.holder, s.within(), running)
}

func running(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && len(p.Status.ContainerStatuses) == 1 &&
		p.Status.ContainerStatuses[0].State.Running != nil && p.Status.ContainerStatuses[0].RestartCount == 0
}

// storm starts pods all at once, each for one device.
func (c *court) storm(ctx context.Context, s Step) error {
	ctx, cancel := context.WithTimeout(ctx, s.within())
	defer cancel()
	var names []string
	for range s.Count {
		name, err := c.pod(ctx, 1, "")
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	for _, name := range names {
		if err := c.ended(ctx, name, s.within()); err != nil {
			return err
		}
	}
	return nil
}

// removePods deletes all pods and waits until they are gone.
func (c *court) removePods(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	which := metav1.ListOptions{LabelSelector: "app=judged"}
	now := int64(0)
	at := metav1.DeleteOptions{GracePeriodSeconds: &now}
	pods := c.client().CoreV1().Pods(namespace)
	for {
		err := pods.DeleteCollection(ctx, at, which)
		if err == nil {
			list, listErr := pods.List(ctx, which)
			if err = listErr; err == nil && len(list.Items) == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pods are not gone: %w", errors.Join(ctx.Err(), err))
		case <-time.After(time.Second):
		}
	}
}

// stream is short pods one after the other, until it ends.
type stream struct {
	stop context.CancelFunc
	over sync.WaitGroup

	mu       sync.Mutex
	computed int
	errs     []error
}

func (s *stream) end() {
	s.stop()
	s.over.Wait()
}

// startStream starts short pods, one after the other for each device.
func (c *court) startStream(context.Context, Step) error {
	ctx, stop := context.WithCancel(context.Background())
	c.stream = &stream{stop: stop}
	c.pods++
	for lane := range c.devices {
		c.stream.over.Go(func() { c.flow(ctx, c.stream, fmt.Sprintf("judged-%d-%d", c.pods, lane)) })
	}
	return nil
}

func (c *court) flow(ctx context.Context, s *stream, prefix string) {
	const patience = 5 * time.Minute
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		err := c.create(ctx, name, 1, "")
		if err == nil {
			err = c.ended(ctx, name, patience)
		}
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		if err != nil {
			s.errs = append(s.errs, err)
		} else {
			s.computed++
		}
		s.mu.Unlock()
		if err != nil {
			_ = pause(ctx) // the loop sees the end
		}
	}
}

// streamed waits for so many pods of the stream, ends it, and fails if a pod was refused or failed.
func (c *court) streamed(ctx context.Context, s Step) error {
	ctx, cancel := context.WithTimeout(ctx, s.within())
	defer cancel()
	for {
		c.stream.mu.Lock()
		computed, errs := c.stream.computed, c.stream.errs
		c.stream.mu.Unlock()
		if computed >= s.Count || len(errs) >= s.Count {
			break
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%d pods computed after %s, want %d: %w", computed, s.within(), s.Count, errors.Join(errs...))
		}
	}
	c.stream.end()
	if errs := c.stream.errs; len(errs) > 0 {
		return fmt.Errorf("%d pods failed while %d computed, such as %w", len(errs), c.stream.computed, errs[0])
	}
	return nil
}
