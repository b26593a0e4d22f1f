package accel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Unrequested says which processes are reported that use a device although nobody gave it to them. They are reported
// and nothing else: the health of the device does not change, and nobody's work ends.
type Unrequested struct {
	// Report is who is reported; all when empty.
	Report UnrequestedReport `json:"report,omitempty"`
	// Beside are who may use devices without a request, such as monitoring daemons: services of the host's systemd
	// ("example-monitor.service"), and the pods of namespaces ("namespace/monitoring"). Those of Handover.Beside may,
	// too.
	Beside []string `json:"beside,omitempty"`
}

// UnrequestedReport is who is reported.
type UnrequestedReport string

// The values of UnrequestedReport.
const (
	ReportAll        UnrequestedReport = "all"
	ReportContainers UnrequestedReport = "containers" // pods and other containers, and no process of the host
	ReportNone       UnrequestedReport = "none"
)

// ReportsUse returns who is reported for the kind.
func (def *Definition) ReportsUse() UnrequestedReport {
	if def.Unrequested == nil {
		return ReportAll
	}
	return cmp.Or(def.Unrequested.Report, ReportAll)
}

// maxBeside is how many may be named in Beside.
const maxBeside = 16

// Problems returns the errors in u, each as "<field>: <sentence>".
func (u Unrequested) Problems() []string {
	var out []string
	if !slices.Contains([]UnrequestedReport{"", ReportAll, ReportContainers, ReportNone}, u.Report) {
		out = append(out, "report: "+NotOneOf(u.Report, "all", "containers", "none"))
	}
	if len(u.Beside) > maxBeside {
		out = append(out, fmt.Sprintf("beside: there are %d, at most %d", len(u.Beside), maxBeside))
	}
	for _, who := range u.Beside {
		if !besideForm.MatchString(who) {
			out = append(out, fmt.Sprintf("beside: %.100q is neither a service nor namespace/<name>", who))
		}
	}
	return out
}

// MaxUnrequested is how many users [UnrequestedHave.Users] names.
const MaxUnrequested = 16

// UnrequestedHave is who uses a device although nobody gave it to them, as of the last look.
type UnrequestedHave struct {
	// Unknown says why it is not known; empty if it is.
	Unknown string `json:"unknown,omitempty"`
	// Count is how many they are: pods, containers in no pod, and services of the host.
	Count int `json:"count"`
	// Users are the first [MaxUnrequested] of them, always in the same order.
	Users []UnrequestedUser `json:"users,omitempty"`
}

// UnrequestedUser is a pod, a container in no pod or a service of the host that uses a device although nobody gave it
// the device. PID, Comm and Device are those of its first process.
type UnrequestedUser struct {
	Holder
	// Processes is how many of its processes use the device.
	Processes int `json:"processes"`
	// Container is the beginning of the container's id; empty for pods and outside containers. Unit is the name of the
	// service, the scope or the control group of a process outside containers.
	Container string `json:"container,omitempty"`
	Unit      string `json:"unit,omitempty"`
	// Given are the devices and partitions of the kind that the pod was given instead.
	Given []string `json:"given,omitempty"`
	// Since is when it was first reported.
	Since time.Time `json:"since"`
}

// Key is the same text for the same pod, container or service.
func (u UnrequestedUser) Key() string {
	switch {
	case u.PodUID != "":
		return "pod " + u.PodUID
	case u.Container != "":
		return "container " + u.Container
	}
	return "host " + u.Unit
}

// String is for people: "process 4242 python3 and 3 more (pod team/train-7, to which no device of the kind is given)".
// A pod that was given the device and has ended is given nothing.
func (u UnrequestedUser) String() string {
	text := fmt.Sprintf("process %d %s", u.PID, u.Comm)
	if u.Processes > 1 {
		text += fmt.Sprintf(" and %d more", u.Processes-1)
	}
	return text + " (" + u.who() + ")"
}

func (u UnrequestedUser) who() string {
	switch {
	case u.PodUID != "":
		name := u.PodUID
		if u.Pod != "" {
			name = u.Namespace + "/" + u.Pod
		}
		if len(u.Given) > 0 {
			return fmt.Sprintf("pod %s, to which %s is given", name, strings.Join(u.Given, " and "))
		}
		return fmt.Sprintf("pod %s, to which no device of the kind is given", name)
	case u.Container != "":
		return fmt.Sprintf("container %s, which is in no pod", u.Container)
	case u.Unit != "":
		return fmt.Sprintf("of the host, in %s", u.Unit)
	}
	return "of the host"
}

// Lines are for people, a line for each user; none if nobody uses the device without a request.
func (h UnrequestedHave) Lines() (lines []string) {
	if h.Unknown != "" {
		return []string{"not known: " + h.Unknown}
	}
	for _, u := range h.Users {
		lines = append(lines, u.String())
	}
	if more := h.Count - len(h.Users); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

// Public returns h without the names of the host's services and of containers, for pages that are served over TCP.
func (h *UnrequestedHave) Public() *UnrequestedHave {
	if h == nil {
		return nil
	}
	out := *h
	out.Users = publicUsers(h.Users)
	return &out
}

func publicUsers(users []UnrequestedUser) []UnrequestedUser {
	users = slices.Clone(users)
	for i := range users {
		if users[i].Unit = ""; users[i].Container != "" {
			users[i].Container = "unnamed"
		}
	}
	return users
}

// UnrequestedChange says who began to use a device although nobody gave it to them.
type UnrequestedChange struct {
	Kind, Device string
	Users        []UnrequestedUser
}

// Of returns the kind.
func (c UnrequestedChange) Of() string { return c.Kind }

// Public is that of [UnrequestedHave.Public].
func (c UnrequestedChange) Public() UnrequestedChange {
	c.Users = publicUsers(c.Users)
	return c
}

// String names the users.
func (c UnrequestedChange) String() string {
	var names []string
	for _, u := range c.Users {
		names = append(names, u.String())
	}
	return strings.Join(names, ", ")
}

// unrequestedChanges returns who is reported in to for the first time. Who was reported before, and then was not known
// for a while, is no news: since says when the earlier machine was taken.
func unrequestedChanges(kind string, since time.Time, from, to []Accelerator) (all []Change) {
	before := map[string]bool{}
	for _, a := range from {
		if a.Unrequested != nil {
			for _, u := range a.Unrequested.Users {
				before[a.ID+" "+u.Key()] = true
			}
		}
	}
	for _, a := range to {
		if a.Unrequested == nil {
			continue
		}
		c := UnrequestedChange{Kind: kind, Device: a.ID}
		for _, u := range a.Unrequested.Users {
			if u.Since.After(since) && !before[a.ID+" "+u.Key()] {
				c.Users = append(c.Users, u)
			}
		}
		if len(c.Users) > 0 {
			all = append(all, c)
		}
	}
	return all
}
