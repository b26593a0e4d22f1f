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
)

// manager owns the fields that this package writes.
const manager = "acceld"

// class is a DeviceClass.
type class struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   meta      `json:"metadata"`
	Spec       classSpec `json:"spec"`
}

// existing is what is read of a DeviceClass: besides its spec who owns which fields of it.
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

// applied is the body of a server-side apply: of the fields that it has the writer becomes the owner, all others stay
// as they are.
type applied struct{ class }

// PatchType is the content type of the patch.
func (applied) PatchType() string { return "application/apply-patch+yaml" }

// classesFor are the DeviceClasses of a kind: one of its devices, and one of each profile of partitions that it says or
// that is there. Pods that ask for the extended resource are served, too.
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
			APIVersion: apiVersion, Kind: "DeviceClass", Metadata: meta{Name: ClassName(def, profile)},
			Spec: classSpec{Selectors: []selector{s}, ExtendedResourceName: def.OfferedAs(profile)},
		})
	}
	return all
}

// keepClasses makes the DeviceClasses of the kind as its definition says, each once for as long as the definition stays
// the same. The cluster has one of each: where definitions of nodes differ, the one that was read last counts.
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
			return // with the next change
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

// deed is what was done about a class.
type deed int

const (
	classRight deed = iota // nothing
	classMade
	classChanged
	classForeign // nothing: somebody else has written it
)

// keepClass makes a DeviceClass, or changes the fields of one that nobody else has written.
func (o objects) keepClass(ctx context.Context, want class) (deed, error) {
	path, owner := apiRoot+"deviceclasses", url.Values{"fieldManager": {manager}}
	var have existing
	err := o.Do(ctx, http.MethodGet, path+"/"+want.Metadata.Name, nil, nil, &have)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // who may not read may still make it
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
	want.Metadata.ResourceVersion = have.Metadata.ResourceVersion // of what was looked at
	owner.Set("force", "true")                                    // over what was written before it was applied
	return classChanged, o.Do(ctx, http.MethodPatch, path+"/"+want.Metadata.Name, owner, applied{want}, nil)
}

// written reports whether somebody else owns one of the fields of the spec. What cannot be read is somebody else's.
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
