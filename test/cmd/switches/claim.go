package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// device is a whole device of the driver's slices, with what it can be divided into.
type device struct {
	name, address string
	parts         map[string][]string // by profile
}

// devices reads the slices of the node.
func (s *stage) devices(ctx context.Context) (all []*device, err error) {
	list, err := s.api.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: "spec.driver=" + s.driver + ",spec.nodeName=" + s.node,
	})
	if err != nil {
		return nil, err
	}
	byName := map[string]*device{}
	for _, wholes := range []bool{true, false} {
		for _, slice := range list.Items {
			for _, d := range slice.Spec.Devices {
				text := func(name resourceapi.QualifiedName) string {
					if a := d.Attributes[name]; a.StringValue != nil {
						return *a.StringValue
					}
					return ""
				}
				parent := text("parent")
				switch {
				case parent == "" && wholes:
					byName[d.Name] = &device{
						name: d.Name, address: text("resource.kubernetes.io/pciBusID"), parts: map[string][]string{},
					}
					all = append(all, byName[d.Name])
				case parent != "" && !wholes && byName[parent] != nil:
					profile := text("profile")
					byName[parent].parts[profile] = append(byName[parent].parts[profile], d.Name)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no device of %s is in the slices of %s", s.driver, s.node)
	}
	return all, nil
}

// live lets a device be something: whole, in one or more parts, or with VFIO.
func (s *stage) live(ctx context.Context, d *device, random *rand.Rand, n int) error {
	what, names := "container", []string{d.name}
	switch random.IntN(3) {
	case 1:
		what = "part"
		profile := []string{"half", "quarter"}[random.IntN(2)]
		names = d.parts[profile]
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		if names = names[:min(len(names), 1+random.IntN(2))]; len(names) == 0 {
			return fmt.Errorf("%s has no part %q", d.name, profile)
		}
	case 2:
		what = "vfio"
	}
	var claims []*resourceapi.ResourceClaim
	for i, name := range names { // the parts of a device are there at the same time
		c, err := s.allocate(ctx, fmt.Sprintf("life-%d-%d", n, i), name, what == "vfio")
		if err != nil {
			return err
		}
		claims = append(claims, c)
		if err := s.compute(ctx, c, d, what, random); err != nil {
			return fmt.Errorf("life %d, %s as %s: %w", n, name, what, err)
		}
	}
	for _, c := range claims {
		if err := s.takeBack(ctx, c, random); err != nil {
			return fmt.Errorf("life %d, %s: %w", n, d.name, err)
		}
	}
	s.note(what)
	return nil
}

// allocate makes a claim and gives it a device, as the scheduler does. It is reserved for something other than a pod,
// which the claim's controller leaves alone.
func (s *stage) allocate(ctx context.Context, name, device string, vfio bool) (*resourceapi.ResourceClaim, error) {
	claims := s.api.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "it", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: s.driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
	}}}
	c, err := claims.Create(ctx, c, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	result := resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Request: "it", Driver: s.driver, Pool: s.node, Device: device},
	}}
	if vfio {
		parameters := `{"apiVersion": "acceld.dev/v1alpha1", "kind": "DeviceParameters", "use": "vfio"}`
		result.Config = []resourceapi.DeviceAllocationConfiguration{{
			Source: resourceapi.AllocationConfigSourceClaim, Requests: []string{"it"},
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: s.driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
			}},
		}}
	}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: result}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{APIGroup: "example.com", Resource: "lives", Name: name, UID: c.UID},
	}
	return claims.UpdateStatus(ctx, c, metav1.UpdateOptions{})
}

// compute lets the driver prepare a claim, and a container compute on its device.
func (s *stage) compute(ctx context.Context, c *resourceapi.ResourceClaim, d *device, what string,
	random *rand.Rand,
) error {
	var ids []string
	request := &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{
		{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)},
	}}
	err := s.repeat(ctx, random, func(ctx context.Context, plugin drapb.DRAPluginClient) error {
		answer, err := plugin.NodePrepareResources(ctx, request)
		if err != nil {
			return err
		}
		one := answer.GetClaims()[string(c.UID)]
		if one.GetError() != "" {
			return errors.New(one.GetError())
		}
		ids = ids[:0]
		for _, d := range one.GetDevices() {
			ids = append(ids, d.GetCdiDeviceIds()...)
		}
		if len(ids) == 0 {
			return fmt.Errorf("it was prepared without devices: %v", answer)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot prepare: %w", err)
	}
	said, err := s.container(ctx, c.Name, ids, what == "vfio")
	if err != nil {
		return err
	}
	if !strings.Contains(said, "PASS 1 device(s)") || !strings.Contains(said, d.address) {
		return fmt.Errorf("wrong device: want %s, the container said %s", d.address, said)
	}
	return nil
}

// takeBack lets the driver take a claim back, and deletes it.
func (s *stage) takeBack(ctx context.Context, c *resourceapi.ResourceClaim, random *rand.Rand) error {
	request := &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{
		{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)},
	}}
	err := s.repeat(ctx, random, func(ctx context.Context, plugin drapb.DRAPluginClient) error {
		answer, err := plugin.NodeUnprepareResources(ctx, request)
		if text := answer.GetClaims()[string(c.UID)].GetError(); err == nil && text != "" {
			err = errors.New(text)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot take back: %w", err)
	}
	return s.api.ResourceV1().ResourceClaims(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{})
}
