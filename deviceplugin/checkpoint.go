package deviceplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/acceld/acceld/host"
)

// checkpointFile is the kubelet's record of the devices that it has given out, beside its socket
// (pkg/kubelet/cm/devicemanager/checkpoint). It is written before a container starts and outlives the kubelet. The
// entries of pods that have ended stay until the kubelet writes it again.
const checkpointFile = "kubelet_internal_checkpoint"

// maxCheckpoint is the maximum size of a checkpoint in bytes: it also has all registered devices, and the answer to
// each Allocate.
const maxCheckpoint = 16 << 20

// given are the devices of one resource that the kubelet has given to a container.
type given struct {
	pod       string // its UID
	container string
	resource  string
	ids       []string
}

// givenName is the form of a pod's UID, which for a static pod its file may say, and of a container's name.
var givenName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,252}$`)

// parseCheckpoint parses a checkpoint. Its checksum, which depends on the kubelet's own types, is ignored.
func parseCheckpoint(text []byte) ([]given, error) {
	var file struct {
		Data *struct {
			PodDeviceEntries []struct {
				PodUID, ContainerName, ResourceName string
				DeviceIDs                           map[string][]string // by NUMA node
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Data == nil {
		return nil, errors.New("it has no data")
	}
	var all []given
	for _, e := range file.Data.PodDeviceEntries {
		if !givenName.MatchString(e.PodUID) || !givenName.MatchString(e.ContainerName) {
			return nil, fmt.Errorf("%.64q, %.64q are not a pod's UID and a container", e.PodUID, e.ContainerName)
		}
		g := given{pod: e.PodUID, container: e.ContainerName, resource: e.ResourceName}
		for _, ids := range e.DeviceIDs {
			g.ids = append(g.ids, ids...)
		}
		all = append(all, g)
	}
	return all, nil
}

// readCheckpoint reads the checkpoint in the kubelet's directory. A kubelet that never gave out a device has none.
func readCheckpoint(dir string) ([]given, error) {
	own, err := host.New("/")
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, checkpointFile)
	f, err := own.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxCheckpoint+1))
	if err == nil && len(text) > maxCheckpoint {
		err = fmt.Errorf("it has more than %d bytes", maxCheckpoint)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", name, err)
	}
	all, err := parseCheckpoint(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", name, err)
	}
	return all, nil
}

// Given returns the UIDs of the pods to which, as the kubelet's checkpoint says, each device was given, by the
// kubelet's ids. Pods that have ended may be among them, and devices of other plugins.
func (k *Kind) Given() (pods map[string][]string, err error) {
	all, err := readCheckpoint(k.cfg.Dir)
	pods = map[string][]string{}
	for _, g := range all {
		for _, id := range g.ids {
			pods[id] = append(pods[id], g.pod)
		}
	}
	return pods, err
}

// unlisted returns the holders that a kubelet does not list although its checkpoint has them and they run: a kubelet
// that has restarted does not know a pod before the API server has sent it.
func (k *kubelet) unlisted(listed heldRefs) (heldRefs, error) {
	all, err := readCheckpoint(k.dir)
	if err != nil || k.pods == nil {
		return heldRefs{}, err
	}
	more := heldRefs{now: map[string]PodRef{}, before: map[string]PodRef{}}
	var pods host.Pods
	for _, g := range all {
		known, into := listed.now, more.now
		if slices.Contains(k.former, g.resource) {
			known, into = listed.before, more.before
		} else if g.resource != k.resource {
			continue
		}
		for _, id := range g.ids {
			if _, is := known[id]; is {
				continue
			}
			if pods == nil {
				if pods, err = k.pods(); err != nil {
					return heldRefs{}, err
				}
			}
			if pods.Has(g.pod) {
				into[id] = PodRef{UID: g.pod, Container: g.container}
			}
		}
	}
	return more, nil
}
