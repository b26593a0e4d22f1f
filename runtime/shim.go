package runtime

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/gate"
)

// dockerAPI is where docker answers, also if the kubelet's endpoint is that of cri-dockerd.
const dockerAPI = "unix:///var/run/docker.sock"

// shim is what is known about the program between the kubelet and docker. It only shows in containers whether the
// program passes on the names of devices: the kubelet notices nothing, and the program does not say.
type shim struct {
	asked   time.Time
	through string // the program that it is about
	text    string
	problem *accel.Problem
}

// passesOn says what is known about the program between the kubelet and docker: a text, and the problem of a program
// that does not pass on devices. A problem that is known already comes first. It asks docker at most once a minute.
func (cl *client) passesOn(e accel.ContainerEngine, p *accel.Problem) (string, *accel.Problem) {
	const often = time.Minute
	if s := &cl.shim; cl.live() && (s.through != e.Through || time.Since(s.asked) >= often) {
		*s = cl.lookAtContainers(e)
	}
	text := cl.shim.text
	if text == "" {
		text = e.Through + ": not known whether it passes on devices"
	}
	if p == nil {
		p = cl.shim.problem
	}
	return text, p
}

// lookAtContainers looks at the containers that the kubelet gave devices and that the running program created.
func (cl *client) lookAtContainers(e accel.ContainerEngine) shim {
	s := shim{asked: time.Now(), through: e.Through}
	ids, err := cl.withDevices(e.ThroughStarted)
	for _, id := range ids {
		var given, other bool
		given, other, err = cl.devicesOf(id)
		switch {
		case err != nil || other:
			continue
		case given:
			s.text = fmt.Sprintf("%s: passes on devices, as container %.12s shows", e.Through, id)
			return s
		case !e.ThroughStarted.IsZero():
			s.problem = accel.Problemf(accel.RuntimeMissingCDI,
				"%s does not pass on the names of devices: container %.12s has none of those that the kubelet gave it",
				e.Through, id)
			s.text = s.problem.Message
			return s
		}
	}
	s.text = e.Through + ": not known whether it passes on devices: no container has one yet"
	if err != nil {
		s.text = fmt.Sprintf("%s: not known whether it passes on devices: %v", e.Through, err)
	}
	return s
}

// dockerID is the form of a container's id.
var dockerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// withDevices returns the ids of running containers to which the kubelet gave acceld's devices, the newest first, that
// were created since a time. cri-dockerd makes a label of each annotation of a container (core/helpers.go, makeLabels),
// and the kubelet adds the annotations of device plugins only there, so that a pod's author cannot write them.
func (cl *client) withDevices(since time.Time) ([]string, error) {
	const most = 16
	filters := url.QueryEscape(`{"label":["annotation.` + gate.Annotation + `"]}`)
	b, err := cl.get(dockerAPI, "/containers/json?filters="+filters)
	if err != nil {
		return nil, fmt.Errorf("cannot list docker's containers: %w", err)
	}
	var all []struct {
		ID      string `json:"Id"`
		Created int64  `json:"Created"` // seconds since 1970
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("cannot list docker's containers: %w", err)
	}
	var ids []string
	for _, c := range all {
		if dockerID.MatchString(c.ID) && c.Created >= since.Unix() && len(ids) < most {
			ids = append(ids, c.ID)
		}
	}
	return ids, nil
}

// devicesOf reports whether a container got devices by name, or in another way, which says nothing about names.
func (cl *client) devicesOf(id string) (named, other bool, err error) {
	b, err := cl.get(dockerAPI, "/containers/"+id+"/json")
	if err != nil {
		return false, false, fmt.Errorf("cannot look at container %.12s: %w", id, err)
	}
	var c struct {
		HostConfig struct {
			Devices        []json.RawMessage
			DeviceRequests []struct{ Driver string }
		}
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return false, false, fmt.Errorf("cannot look at container %.12s: %w", id, err)
	}
	for _, r := range c.HostConfig.DeviceRequests {
		if r.Driver == "cdi" {
			return true, false, nil
		}
	}
	return false, len(c.HostConfig.Devices) > 0, nil
}
