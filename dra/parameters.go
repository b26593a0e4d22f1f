package dra

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Version and kind of the parameters that a claim or a class may pass to this driver.
const (
	ParametersVersion = "acceld.dev/v1alpha1"
	ParametersKind    = "DeviceParameters"
)

// Parameters are the opaque configuration of this driver.
type Parameters struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Env is added to the environment of a container with the device. It must not set a variable that the kind
	// itself sets.
	Env map[string]string `json:"env,omitempty"`
	// Check lets the device pass the definition's self-test before the claim is prepared. If a class asks for it, a
	// claim cannot undo that.
	Check bool `json:"check,omitempty"`
	// Use is as what the device is given out: "vfio", if the definition allows it, and the class's parameters, or also
	// the claim's, may ask for it. If a class asks for it, a claim cannot undo that.
	Use accel.Use `json:"use,omitempty"`
	// Metadata gives containers a file with the attributes of the device (KEP-5304). With a Use they always have it.
	Metadata bool `json:"metadata,omitempty"`
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// settings is what the configuration of a claim says about the device of a request.
type settings struct {
	// env has variables, each as "NAME=value", sorted by name. A later configuration wins: the API server lists the
	// class's before the claim's.
	env []string
	// check is whether the device has to pass its self-test first.
	check bool
	// use is as what the device is given out, and metadata is whether containers get the file with its attributes.
	use      accel.Use
	metadata bool
}

// configured returns what the configuration of a claim says about the device of a request.
func configured(configs []configuration, driver, request string, def *accel.Definition) (out settings, err error) {
	set := map[string]string{}
	for i, c := range configs {
		if c.Opaque == nil || c.Opaque.Driver != driver || !applies(c.Requests, request) {
			continue
		}
		field := fmt.Sprintf("config[%d]", i)
		if c.Source == "FromClass" {
			field = fmt.Sprintf("config[%d] of its device class", i)
		}
		p, err := parse(c.Opaque.Parameters)
		if err != nil {
			return settings{}, fmt.Errorf("%s.opaque.parameters: %w", field, err)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Env)) {
			switch {
			case !envName.MatchString(name):
				return settings{}, fmt.Errorf("%s.opaque.parameters.env: %q is not the name of a variable", field, name)
			case slices.ContainsFunc(def.Container.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") }):
				return settings{}, fmt.Errorf("%s.opaque.parameters.env: %q is set by kind %q itself", field, name, def.Kind)
			case strings.ContainsRune(p.Env[name], 0):
				return settings{}, fmt.Errorf("%s.opaque.parameters.env: the value of %q has a zero byte", field, name)
			}
			set[name] = p.Env[name]
		}
		if p.Check && def.Check == nil {
			return settings{}, fmt.Errorf("%s.opaque.parameters.check: kind %q has no self-test", field, def.Kind)
		}
		if text := misuse(p.Use, c.Source == "FromClass", def); text != "" {
			return settings{}, fmt.Errorf("%s.opaque.parameters.use: %s", field, text)
		}
		out.check = out.check || p.Check
		out.use, out.metadata = cmp.Or(out.use, p.Use), out.metadata || p.Metadata || p.Use != ""
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out.env = append(out.env, name+"="+set[name])
	}
	return out, nil
}

// misuse says why parameters may not ask for a use; empty if they may. A whole PCI function is not for everybody who
// may create a claim: an administrator allows it for the kind, and writes the class that asks for it.
func misuse(use accel.Use, class bool, def *accel.Definition) string {
	switch {
	case use == accel.UseDevice:
		return ""
	case use != accel.UseVFIO:
		return fmt.Sprintf("%.40q is not %q", use, accel.UseVFIO)
	case def.VFIO == nil:
		return fmt.Sprintf("kind %q does not give devices out with vfio", def.Kind)
	case !class && !def.VFIO.AskedByClaims():
		return fmt.Sprintf("only a device class may ask for it (vfio.ask of kind %q)", def.Kind)
	}
	return ""
}

// applies reports whether a configuration for the given requests is for this request. No requests means all of them.
// A request with alternatives may be named with the chosen one, "request/alternative", or without it.
func applies(requests []string, request string) bool {
	main, _, _ := strings.Cut(request, "/")
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, main)
}

// parse reads parameters strictly: a misspelt parameter that is silently ignored is worse than an error.
func parse(data []byte) (Parameters, error) {
	var p Parameters
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return p, errors.New("there is something after the object")
	}
	if p.APIVersion != ParametersVersion || p.Kind != ParametersKind {
		return p, fmt.Errorf("%q of %q is not %q of %q", p.Kind, p.APIVersion, ParametersKind, ParametersVersion)
	}
	return p, nil
}
