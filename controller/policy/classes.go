package policy

import (
	"context"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// class is a PriorityClass.
type class struct {
	APIVersion  string `json:"apiVersion,omitempty"`
	Kind        string `json:"kind,omitempty"`
	kube.Meta   `json:"metadata"`
	Value       int32  `json:"value"`
	Description string `json:"description,omitempty"`
}

// makeClasses creates the priority classes that policies ask for, and deletes those that no policy asks for any more.
// It returns, by policy, why a class does not exist: somebody else owns the name, or another policy wants it with a
// different value.
func (c *Controller) makeClasses(ctx context.Context, policies []*Policy, have map[string]*class) map[string]string {
	want, unmade := map[string]int32{}, map[string]string{}
	for _, p := range policies {
		if p.Spec.Partition == nil || p.Spec.Partition.PriorityClasses == nil || p.Spec.DryRun ||
			p.DeletionTimestamp != nil || p.broken("partition") {
			continue
		}
		for _, x := range p.Spec.Partition.PriorityClasses.All() {
			if value, taken := want[x.Name]; taken && value != x.Value {
				unmade[p.Name] = "priority class " + x.Name + " is that of another policy, with another value"
				continue
			}
			want[x.Name] = x.Value
			if have[x.Name] == nil && c.makeClass(ctx, x) {
				unmade[p.Name] = "priority class " + x.Name + " is somebody else's"
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if value, wanted := want[name]; wanted && value == have[name].Value {
			continue
		}
		// The value of a class is immutable. The next pass creates the class with the new value.
		if err := c.api.delete(ctx, classesPath+"/"+name, have[name].UID); err != nil {
			c.failed(ctx, "removing a priority class", name, err)
		}
	}
	return unmade
}

// makeClass creates a priority class. It reports whether the name is taken by a class that is not the controller's.
func (c *Controller) makeClass(ctx context.Context, x accel.PriorityClass) (taken bool) {
	body := class{
		APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass", Value: x.Value,
		Description: "Made by acceld for the partition of a policy.",
		Meta: kube.Meta{
			Identity: kube.Identity{Name: x.Name}, Labels: map[string]string{classLabel: "true"},
		},
	}
	answer := &class{}
	err := c.api.create(ctx, classesPath, body, answer)
	switch {
	case err == nil:
		c.classes.Put(answer)
	case apierrors.IsAlreadyExists(err):
		return true
	default:
		c.failed(ctx, "making a priority class", x.Name, err)
	}
	return false
}
