package cli

import (
	"regexp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
)

// facts are those of the host, with what the API server says of the cluster.
func (a *running) facts() accel.Facts {
	f := detect.Detect(a.host, detect.Options{})
	a.around.add(&f)
	switch {
	case a.config.Kubernetes == "off":
		f.Cluster = accel.Cluster{}
	case a.kube != nil:
		version := minor(a.kube.State().ClusterVersion)
		f.Cluster = accel.Cluster{Version: version, Unknown: version == ""}
	case a.config.Kubernetes == "on":
		f.Cluster.Unknown = true // also before there is a kubelet
	}
	return f
}

// versioned lets the loop read the facts again when the API server has said another version.
func (a *running) versioned() {
	if version := a.kube.State().ClusterVersion; version != a.asked {
		a.asked = version
		a.loop.Wake(true)
	}
}

// minor is "1.37" of a version such as "v1.37.1+k3s1"; empty for one that has no such form.
func minor(version string) string {
	if m := regexp.MustCompile(`^v?(\d+\.\d+)(?:\D|$)`).FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return ""
}
