package dra

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acceld/acceld/accel"
)

// recordOf reads from a claim what one driver on one node must give its containers. If something in the claim is
// wrong, the problem is ClaimUnusable and names the claim and the field.
func recordOf(c claim, uid, driver, node string, def *accel.Definition) (record, *accel.Problem) {
	r := record{Version: plainVersion, Namespace: c.Metadata.Namespace, Name: c.Metadata.Name, UID: c.Metadata.UID}
	unusable := func(format string, args ...any) (record, *accel.Problem) {
		return record{}, accel.Problemf(accel.ClaimUnusable, "cannot prepare claim %s/%s: %s", c.Metadata.Namespace,
			c.Metadata.Name, fmt.Sprintf(format, args...))
	}
	if c.Metadata.UID != uid {
		return unusable("the kubelet asks for the one with UID %s, and there is another one of the name, %s", uid,
			c.Metadata.UID)
	}
	if c.Status.Allocation == nil {
		return unusable("it is not allocated")
	}
	for i, d := range c.Status.Allocation.Devices.Results {
		if d.Driver != driver {
			continue
		}
		if d.Pool != node {
			return unusable("status.allocation.devices.results[%d] is in pool %q, and this is node %q", i, d.Pool, node)
		}
		set, err := configured(c.Status.Allocation.Devices.Config, driver, d.Request, def)
		if err != nil {
			return unusable("status.allocation.devices.%v", err)
		}
		if set.check && d.ShareID != "" {
			return unusable("its parameters ask for a check of device %q, which others use at the same time", d.Device)
		}
		if set.use != "" && (d.ShareID != "" || d.AdminAccess) {
			return unusable("its parameters ask for device %q with %s, which others use at the same time", d.Device, set.use)
		}
		if set.use != "" {
			r.Version = recordVersion
		}
		r.Devices = append(r.Devices, given{
			Request: d.Request, Pool: d.Pool, Device: d.Device, Share: d.ShareID, Admin: d.AdminAccess,
			Env: append(set.env, parts(d)...), Check: set.check && !d.AdminAccess,
			Use: set.use, Metadata: set.metadata,
		})
	}
	r.PodClaim = c.Metadata.Annotations[podClaimAnnotation]
	if text := r.misnamed(); text != "" {
		return unusable("%s", text)
	}
	r.Pods = podsOf(c)
	r.Prepared = time.Now().UTC().Truncate(time.Second)
	return r, nil
}

// parts renders the environment variables that tell a container its part of a shared device, such as
// "ACCELD_MEMORY_0000_01_00_0=5368709120". Nothing enforces the limit: the container must keep to it.
func parts(d result) []string {
	if d.ShareID == "" {
		return nil
	}
	word := strings.NewReplacer("-", "_", ".", "_", "/", "_")
	var out []string
	for _, name := range slices.Sorted(maps.Keys(d.Consumed)) {
		q, err := resource.ParseQuantity(d.Consumed[name])
		if err != nil {
			continue // the API server writes only valid quantities
		}
		out = append(out, fmt.Sprintf("ACCELD_%s_%s=%d", strings.ToUpper(word.Replace(path.Base(name))),
			strings.ToUpper(word.Replace(d.Device)), q.Value()))
	}
	return out
}

// allocated reports whether the claim that a record describes still has any of its devices.
func allocated(c claim, r record) bool {
	if c.Metadata.UID != r.UID || c.Status.Allocation == nil {
		return false
	}
	return slices.ContainsFunc(r.Devices, func(g given) bool {
		return slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(d result) bool {
			return d.Pool == g.Pool && d.Device == g.Device && d.ShareID == g.Share
		})
	})
}
