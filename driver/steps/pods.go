package steps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

var errNoPods = errors.New("this host has no credentials of a cluster, so its pods are not known")

// podLogs is where the kubelet keeps what containers print: a directory <namespace>_<pod>_<UID> for each pod, in it one
// for each container, and there a file for each start of the container (k8s.io/kubernetes, pkg/kubelet/kuberuntime,
// helpers.go and legacy.go). The kubelet's podLogsDir can say otherwise; then a step names the file.
const podLogs = "/var/log/pods"

// chosen is which pods of the node a step means.
type chosen struct{ pod, daemonSet string }

// String names them for messages.
func (c chosen) String() string {
	if c.daemonSet != "" {
		return fmt.Sprintf("the pod of DaemonSet %q", c.daemonSet)
	}
	return fmt.Sprintf("pod %q", c.pod)
}

func (c chosen) absent() error { return fmt.Errorf("%s is not on this node", c) }

// of returns those of all pods of the node.
func (c chosen) of(all []accel.NodePod) []accel.NodePod {
	return slices.DeleteFunc(slices.Clone(all), func(p accel.NodePod) bool {
		if c.daemonSet != "" {
			return p.DaemonSet == "" || p.Namespace+"/"+p.DaemonSet != c.daemonSet
		}
		return p.Namespace+"/"+p.Name != c.pod
	})
}

// reached reports whether a pod is as a step waits for it. The pod of a DaemonSet never ends.
func (c chosen) reached(p accel.NodePod) bool {
	return p.Ready || c.daemonSet == "" && p.Phase == "Succeeded"
}

// waitForPod waits until a pod is ready or has succeeded.
func (r *Steps) waitForPod(ctx context.Context, c chosen) error {
	why := c.absent()
	err := r.watchUntil(ctx, podLogs, "", func() bool {
		all, err := r.pods()
		found := c.of(all)
		switch {
		case err != nil:
			why = err
		case len(found) == 0:
			why = c.absent()
		case slices.ContainsFunc(found, c.reached):
			return true
		default:
			why = fmt.Errorf("%s is not ready: it is %s", c, strings.ToLower(found[0].Phase))
		}
		return false
	})
	if err != nil {
		return why
	}
	return nil
}

// waitForPodLog waits for a line of a container.
func (r *Steps) waitForPodLog(ctx context.Context, c chosen, container string, match *regexp.Regexp) error {
	if container == "" {
		container = "*"
	}
	read := map[string]*int64{} // by file
	why := c.absent()
	err := r.watchUntil(ctx, podLogs, "", func() bool {
		all, err := r.pods()
		found := c.of(all)
		if err != nil || len(found) == 0 {
			if why = err; err == nil {
				why = c.absent()
			}
			return false
		}
		why = fmt.Errorf("no log of %s has a line that matches %q", c, match)
		return slices.ContainsFunc(found, func(p accel.NodePod) bool {
			files := r.h.Glob(path.Join(podLogs, p.Namespace+"_"+p.Name+"_"+p.UID), container+"/*.log")
			return slices.ContainsFunc(files, func(file string) bool {
				if read[file] == nil {
					read[file] = new(int64)
				}
				return r.grown(file, read[file], func(line []byte) bool { return printed(line, match) })
			})
		})
	})
	if err != nil {
		return why
	}
	return nil
}

// printed reports whether a line of the file in which the runtime keeps what a container prints matches. It has a time,
// a stream, a tag and the text (k8s.io/design-proposals, node/kubelet-cri-logging.md). A long line of the container is
// several there, which are compared one by one.
func printed(line []byte, match *regexp.Regexp) bool {
	text, ok := afterFields(line, 3)
	return ok && match.Match(bytes.TrimSuffix(text, []byte("\n")))
}

// afterFields returns what follows n fields of a line, each of which ends with one space.
func afterFields(line []byte, n int) (rest []byte, ok bool) {
	for range n {
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			return nil, false
		}
		line = line[i+1:]
	}
	return line, true
}
