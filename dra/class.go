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
			APIVersion: apiVersion, Kind: "DeviceClass",
			Metadata: kube.Meta{Identity: kube.Identity{Name: ClassName(def, profile)}},
			Spec:     classSpec{Selectors: []selector{s}, ExtendedResourceName: def.OfferedAs(profile)},
		})
	}
	return all
}

// keepClasses creates or updates the DeviceClasses of the kind to match its definition, each one once until the
// definition changes. They are shared by the whole cluster: if the definitions of two nodes differ, the one that was
// applied last wins.
func (b *publisher) keepClasses(ctx context.Context) {
	v := b.list.load()
	for _, want := range classesFor(v.def, v.sorted()) {
		name := want.Metadata.Name
		if settled, known := b.classed[name]; known && reflect.DeepEqual(settled, want.Spec) {
			continue
		}
		err := b.keepClass(ctx, want)
		if err != nil && problem("keep device class", err).Reason == accel.APIUnreachable || apierrors.IsConflict(err) {
			return // try again with the next change
		}
		b.classed[name] = want.Spec
		if err != nil {
			b.cfg.Log.Warn("the device class cannot be kept; somebody with the right has to", "class", name, "error",
				err)
		}
	}
}

// keepClass creates a DeviceClass, or updates one whose fields nobody else has written.
func (b *publisher) keepClass(ctx context.Context, want class) error {
	path, owner := apiRoot+"deviceclasses", url.Values{"fieldManager": {manager}}
	log := b.cfg.Log.With("class", want.Metadata.Name)
	var have existing
	err := b.api.Do(ctx, http.MethodGet, path+"/"+want.Metadata.Name, nil, nil, &have)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // create may be allowed although read is not
		err = b.api.Do(ctx, http.MethodPost, path, owner, want, nil)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		if err == nil {
			log.Info("device class made")
		}
		return err
	case err != nil || reflect.DeepEqual(have.Spec, want.Spec):
		return err
	case have.foreign():
		log.Warn("the device class is somebody else's and not as the definition says; it is left alone")
		return nil
	}
	want.Metadata.ResourceVersion = have.Metadata.ResourceVersion // fail if it changed since it was read
	owner.Set("force", "true")                                    // overrules what acceld itself wrote by create, not by apply
	err = b.api.Do(ctx, http.MethodPatch, path+"/"+want.Metadata.Name, owner, applied{want}, nil)
	if err == nil {
		log.Info("device class changed")
	}
	return err
}

// foreign reports whether somebody else owns a field of the spec that this package writes. An entry that cannot be
// read counts as theirs.
func (x existing) foreign() bool {
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
		if owned.Spec["f:selectors"] != nil || owned.Spec["f:extendedResourceName"] != nil {
			return true
		}
	}
	return false
}
