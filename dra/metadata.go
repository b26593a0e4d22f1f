package dra

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
)

// Containers learn the attributes of their devices from files (KEP-5304), as KubeVirt does. The layout and the content
// are those of k8s.io/dynamic-resource-allocation/api/metadata, v0.37, without its module: see the package comment.
const (
	containerDir       = "/var/run/kubernetes.io/dra-device-attributes"
	podClaimAnnotation = "resource.kubernetes.io/pod-claim-name" // on claims that were made from a template
	// metadataDir is where the files are on the host: on a file system that is empty after a boot, when the kubelet
	// prepares its claims again.
	metadataDir = "/run/acceld/metadata"
)

// metadataVersions are the versions in a file, the newest first: a reader takes the first one that it knows.
func metadataVersions() []string {
	return []string{"metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"}
}

// deviceMetadata is the DeviceMetadata of both versions.
type deviceMetadata struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   metadataOfClaim   `json:"metadata"`
	PodClaim   string            `json:"podClaimName,omitempty"`
	Requests   []metadataRequest `json:"requests"`
}

type metadataOfClaim struct {
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
}

type metadataRequest struct {
	Name    string           `json:"name"`
	Devices []metadataDevice `json:"devices"`
}

type metadataDevice struct {
	Driver     string               `json:"driver"`
	Pool       string               `json:"pool"`
	Name       string               `json:"name"`
	Attributes map[string]Attribute `json:"attributes,omitempty"`
}

// nameForm is what names look like that become part of paths (RFC 1123, as the API server holds claims to it).
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// misnamed says which name of a claim with metadata cannot be part of a path; empty if all can.
func (r record) misnamed() string {
	for _, g := range r.Devices {
		for what, name := range map[string]string{
			"request": baseOf(g.Request), "claim": r.Name, "claim of its pod": r.PodClaim,
		} {
			if g.Metadata && !nameForm.MatchString(name) && (name != "" || what != "claim of its pod") {
				return fmt.Sprintf("%q is not the name of a %s", name, what)
			}
		}
	}
	return ""
}

// baseOf returns the request without the alternative that was chosen.
func baseOf(request string) string {
	base, _, _ := strings.Cut(request, "/")
	return base
}

// metadata are the files of a plugin's claims.
type metadata struct{ *Plugin }

// file is the host's path of the file for a request.
func (p metadata) file(uid, request string) string {
	return path.Join(metadataDir, p.driver, uid, request+".json")
}

// mounts returns the mounts of the files that a container gets with a device: those of the requests whose first device
// it is. Every container that asks for a request gets all its devices.
func (p metadata) mounts(r record, g given) (all []*specs.Mount) {
	seen := map[string]bool{}
	for _, o := range r.Devices {
		base := baseOf(o.Request)
		if !o.Metadata || seen[base] {
			continue
		}
		seen[base] = true
		if cdiName(r.UID, o) != cdiName(r.UID, g) {
			continue
		}
		sub, name := "resourceclaims", r.Name
		if r.PodClaim != "" {
			sub, name = "resourceclaimtemplates", r.PodClaim
		}
		all = append(all, &specs.Mount{
			HostPath:      p.file(r.UID, base),
			ContainerPath: path.Join(containerDir, sub, name, base, p.driver+"-metadata.json"),
			Options:       []string{"ro", "bind"},
		})
	}
	return all
}

// render renders the file for a request; nil if its containers get none. It has at most as many devices as a claim,
// which are 32.
func (p metadata) render(r record, request string, accs map[string]accel.Accelerator) []byte {
	v := p.view()
	m := deviceMetadata{
		Kind: "DeviceMetadata", Metadata: metadataOfClaim{r.Name, r.Namespace, r.UID, 1}, PodClaim: r.PodClaim,
	}
	wanted := false
	for _, g := range r.Devices {
		if baseOf(g.Request) != request {
			continue
		}
		wanted = wanted || g.Metadata
		if len(m.Requests) == 0 {
			m.Requests = []metadataRequest{{Name: g.Request}}
		}
		attributes := v.attributes(accs[g.Device])
		if g.Use != "" {
			delete(attributes, "driverVersion") // of a driver that it does not have
		}
		m.Requests[0].Devices = append(m.Requests[0].Devices, metadataDevice{p.driver, g.Pool, g.Device, attributes})
	}
	if !wanted {
		return nil
	}
	var out bytes.Buffer
	for _, version := range metadataVersions() {
		m.APIVersion = version
		if err := json.NewEncoder(&out).Encode(m); err != nil {
			panic(err) // texts and numbers always marshal
		}
	}
	return out.Bytes()
}

// write writes the files of a claim. A file is written in place of the former one only if it differs: containers have
// the file itself, and do not see another one.
func (p metadata) write(r record, accs map[string]accel.Accelerator) *accel.Problem {
	for _, request := range requestsOf(r) {
		data := p.render(r, request, accs)
		if data == nil {
			continue
		}
		file := p.file(r.UID, request)
		if now, err := p.cfg.Host.ReadFile(file); err == nil && bytes.Equal(now, data) {
			continue
		}
		err := p.cfg.Host.MkdirAll(path.Dir(file), 0o755)
		if err == nil {
			err = p.cfg.Host.WriteFile(file, data, 0o644)
		}
		if err != nil {
			return accel.ProblemOf(err, "cannot write the metadata of %s", r)
		}
	}
	return nil
}

// requestsOf returns the requests of a claim, each once.
func requestsOf(r record) (all []string) {
	for _, g := range r.Devices {
		if base := baseOf(g.Request); !slices.Contains(all, base) {
			all = append(all, base)
		}
	}
	return all
}

// drop removes the files of a claim.
func (p metadata) drop(uid string) {
	dir := path.Join(metadataDir, p.driver, uid)
	if err := p.cfg.Host.RemoveAll(dir); err != nil {
		p.cfg.Log.Warn("metadata of a claim left behind", "path", dir, "error", err)
	}
}
