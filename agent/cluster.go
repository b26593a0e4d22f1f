package agent

import (
	"cmp"
	"os"
	"regexp"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// connect creates the clients of the API server if there are credentials, and reports whether there are.
func (a *Agent) connect(node string) (connected bool, problem *accel.Problem) {
	if !credentials(a.Config) {
		return false, nil
	}
	client, err := kube.NewClient(a.Config.Kubeconfig)
	if err != nil {
		return false, accel.Problemf(accel.ConfigInvalid, "cannot use the API server's credentials: %v", err)
	}
	a.documents = &client.Documents
	a.pods = kube.NewBoundPods(client.Documents, node, a.Log, func() { a.gate.open(a.machine) })
	namespace := cmp.Or(os.Getenv("POD_NAMESPACE"), kube.Namespace)
	leases, follow := client.Leases(namespace)
	a.election = &election{
		election: kube.NewElection(leases, node, a.Log), follow: follow,
		ctx: a.ctx, group: &a.group, wake: a.wake, log: a.Log, awaited: map[string]bool{},
	}
	origin := kube.OriginUnit
	if os.Getenv("POD_NAMESPACE") != "" {
		origin = kube.OriginPod
	}
	a.kube = kube.New(kube.Config{
		Client: client, Node: node, Log: a.Log, Origin: origin, OnChange: a.nodeChanged,
		Quiet: !a.Config.Maintenance, TaintOnRegression: a.Config.TaintOnRegression,
		Past: func(kind string, x accel.Accelerator) (accel.Past, bool) { return a.history.Past(kind, x, time.Now()) },
	})
	return true, nil
}

// nodeChanged takes over what the API server reports about the node and about itself.
func (a *Agent) nodeChanged() {
	a.changed()
	a.followLabels()
	a.needPods(a.machine())
	if version := a.kube.State().ClusterVersion; version != a.clusterVersion {
		a.clusterVersion = version
		a.wake(true) // the facts are read again
	}
}

// facts returns the facts of the host, with what the API server reports about the cluster. Devices that cannot be read
// are as they were.
func (a *Agent) facts() accel.Facts {
	f := a.reader.Detect()
	a.around.add(&f)
	a.newest.Store(&f)
	switch {
	case a.Config.Kubernetes == "off":
		f.Cluster = accel.Cluster{}
	case a.kube != nil:
		version := minor(a.kube.State().ClusterVersion)
		f.Cluster = accel.Cluster{Version: version, Unknown: version == ""}
	case a.Config.Kubernetes == "on":
		f.Cluster.Unknown = true // even before there is a kubelet
	}
	return f
}

// minor returns "1.37" for a version such as "v1.37.1+k3s1", and "" for a version of any other form.
func minor(version string) string {
	if m := regexp.MustCompile(`^v?(\d+\.\d+)(?:\D|$)`).FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return ""
}
