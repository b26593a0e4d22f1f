package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// manager is the field manager that owns the fields that this package writes.
const manager = "acceld"

// class is a DeviceClass.
type class struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   kube.Meta `json:"metadata"`
	Spec       classSpec `json:"spec"`
}

// existing has the parts of a DeviceClass that are read: its spec, and who owns which of its fields.
type existing struct {
	Metadata struct {
		ResourceVersion string    `json:"resourceVersion"`
		ManagedFields   []managed `json:"managedFields"`
	} `json:"metadata"`
	Spec classSpec `json:"spec"`
}

type managed struct {
	Manager string          `json:"manager"`
	Fields  json.RawMessage `json:"fieldsV1"`
}

type classSpec struct {
	Selectors []selector `json:"selectors,omitempty"`
	// ExtendedResourceName lets pods that ask for this extended resource be served by claims.
	ExtendedResourceName string `json:"extendedResourceName,omitempty"`
}

type selector struct {
	CEL struct {
		Expression string `json:"expression"`
	} `json:"cel"`
}

// applied is the body of a server-side apply. The writer becomes the owner of the fields in it; all other fields
// stay as they are.
type applied struct{ class }

// PatchType is the content type of the patch.
func (applied) PatchType() string { return "application/apply-patch+yaml" }

// classesFor returns the DeviceClasses of a kind: one for whole devices, and one for each partition profile that the
// definition names or that a device has. They also serve pods that request the extended resource.
func classesFor(def *accel.Definition, units []accel.Accelerator) []class {
	profiles := []string{""}
	for _, u := range units {
		profiles = append(profiles, u.Profile)
	}
	if def.Partitions != nil {
		for _, p := range def.Partitions.Profiles {
			profiles = append(profiles, accel.PartitionWord(p.Name))
		}
	}
	slices.Sort(profiles)
	var all []class
	for _, profile := range slices.Compact(profiles) {
		driver := DriverName(def)
		expression := fmt.Sprintf("device.driver == %q", driver)
		switch {
		case profile != "":
			expression += fmt.Sprintf(
				" && has(device.attributes[%[1]q].profile) && device.attributes[%[1]q].profile == %[2]q", driver,
				profile)
		case def.Partitions != nil:
			expression += fmt.Sprintf(" && !has(device.attributes[%q].profile)", driver)
		}
		s := selector{}
		s.CEL.Expression = expression
		all = append(all, class{
			APIVersion: apiVersion, Kind: "DeviceClass", Metadata: kube.Meta{Name: ClassName(def, profile)},
			Spec: classSpec{Selectors: []selector{s}, ExtendedResourceName: def.OfferedAs(profile)},
		})
	}
	return all
}

// keepClasses creates or updates the DeviceClasses of the kind to match its definition, each one once until the
// definition changes. They are shared by the whole cluster: if the definitions of two nodes differ, the one that was
// applied last wins.
func (b *publisher) keepClasses(ctx context.Context) {
	for _, want := range classesFor(b.cfg.Definition, b.list.load().sorted()) {
		name := want.Metadata.Name
		if settled, known := b.classed[name]; known && reflect.DeepEqual(settled, want.Spec) {
			continue
		}
		what, err := limited(ctx, b.timing.request, func(ctx context.Context) (deed, error) {
			return b.api.keepClass(ctx, want)
		})
		if err != nil && problem("keep device class", err).Reason == accel.APIUnreachable || apierrors.IsConflict(err) {
			return // try again with the next change
		}
		b.classed[name] = want.Spec
		switch {
		case err != nil:
			b.cfg.Log.Warn("the device class cannot be kept; somebody with the right has to", "class", name, "error",
				err)
		case what == classForeign:
			b.cfg.Log.Warn("the device class is somebody else's and not as the definition says; it is left alone",
				"class", name)
		case what == classMade:
			b.cfg.Log.Info("device class made", "class", name)
		case what == classChanged:
			b.cfg.Log.Info("device class changed", "class", name)
		}
	}
}

// deed is what keepClass did about a class.
type deed int

const (
	classRight deed = iota // nothing to do
	classMade
	classChanged
	classForeign // nothing done: somebody else has written the class
)

// keepClass creates a DeviceClass, or updates one whose fields nobody else has written.
func (o objects) keepClass(ctx context.Context, want class) (deed, error) {
	path, owner := apiRoot+"deviceclasses", url.Values{"fieldManager": {manager}}
	var have existing
	err := o.Do(ctx, http.MethodGet, path+"/"+want.Metadata.Name, nil, nil, &have)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // create may be allowed although read is not
		err := o.Do(ctx, http.MethodPost, path, owner, want, nil)
		if apierrors.IsAlreadyExists(err) {
			return classRight, nil
		}
		return classMade, err
	case err != nil:
		return classRight, err
	case reflect.DeepEqual(have.Spec, want.Spec):
		return classRight, nil
	case have.written("selectors", "extendedResourceName"):
		return classForeign, nil
	}
	want.Metadata.ResourceVersion = have.Metadata.ResourceVersion // fail if it changed since it was read
	owner.Set("force", "true")                                    // overrules what acceld itself wrote by create, not by apply
	return classChanged, o.Do(ctx, http.MethodPatch, path+"/"+want.Metadata.Name, owner, applied{want}, nil)
}

// written reports whether somebody else owns one of the fields of the spec. An entry that cannot be read counts as
// theirs.
func (x existing) written(fields ...string) bool {
	for _, entry := range x.Metadata.ManagedFields {
		var owned struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if entry.Manager == manager {
			continue
		}
		if len(entry.Fields) > 0 && json.Unmarshal(entry.Fields, &owned) != nil {
			return true
		}
		for _, f := range fields {
			if _, theirs := owned.Spec["f:"+f]; theirs {
				return true
			}
		}
	}
	return false
}
