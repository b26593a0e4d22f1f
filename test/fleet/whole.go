package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the kubelet, Node Feature Discovery and the agent write about a node of a cluster, in number and size. The
// controller keeps little of it, and has to read all of it.
const (
	// WholeCards is how many cards a whole node has.
	WholeCards = 8
	// wholeImages is the most that a kubelet reports (nodeStatusMaxImages of its configuration, 50 by default).
	wholeImages = 50
	// wholeFeatures is how many labels Node Feature Discovery writes about a processor and a kernel.
	wholeFeatures = 60
	wholeZones    = 3
	// wholeKind is the kind of the cards.
	wholeKind = "qemu-edu"
)

// WholeName is the name of a whole node.
func WholeName(i int) string { return fmt.Sprintf("node-%05d.cluster.example", i) }

// WholeCard is the name of a card of a whole node.
func WholeCard(c int) string { return fmt.Sprintf("0000-%02x-00.0", c+1) }

// WholeNode makes node i with all that others write about it, as JSON some 17 KB. Each of its eight cards has 10
// shares, 1000 millicores and 64 GiB, as the agent's annotation says.
func WholeNode(i int) *corev1.Node {
	total := Amounts{"shares": "80", "millicores": "8000", "memory": "512Gi"}.list()
	for name, amount := range map[corev1.ResourceName]string{
		"cpu": "128", "memory": "1056Gi", "pods": "110", "ephemeral-storage": "3500Gi", "hugepages-2Mi": "0",
	} {
		total[name] = resource.MustParse(amount)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: WholeName(i), Labels: wholeLabels(i), Annotations: wholeAnnotations(i)},
		Spec:       corev1.NodeSpec{PodCIDR: wholeAddress(i) + "/32", ProviderID: "example:///" + WholeName(i)},
		Status: corev1.NodeStatus{
			Capacity: total, Allocatable: total, Conditions: WholeConditions(time.Now()), Images: images(),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: wholeAddress(i)},
				{Type: corev1.NodeHostName, Address: WholeName(i)},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: fmt.Sprintf("%032x", i), SystemUUID: fmt.Sprintf("%036x", i), BootID: fmt.Sprintf("%036x", i),
				KernelVersion: "6.1.0-47-amd64", OSImage: "Debian GNU/Linux 12 (bookworm)", Architecture: "amd64",
				ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.37.1", OperatingSystem: "linux",
			},
		},
	}
}

func wholeAddress(i int) string { return fmt.Sprintf("10.%d.%d.%d", 1+i/65536, i/256%256, i%256) }

func wholeLabels(i int) map[string]string {
	labels := map[string]string{
		"kubernetes.io/hostname": WholeName(i), "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
		"node.kubernetes.io/instance-type": "eight-cards", "topology.kubernetes.io/region": "example-1",
		"topology.kubernetes.io/zone":                 fmt.Sprint("example-1", string(rune('a'+i%wholeZones))),
		"acceld.dev/" + wholeKind + ".count":          "8",
		"acceld.dev/" + wholeKind + ".driver-version": "1",
		"acceld.dev/host.vendor":                      "Example",
		"acceld.dev/host.product":                     "Eight",
	}
	for _, state := range []string{
		"driver-container", "runtime-enablement", "device-plugin", "device-monitoring", "feature-discovery",
	} {
		labels["acceld.dev/"+state+"-"+wholeKind] = "ready"
	}
	for f := range wholeFeatures {
		labels[fmt.Sprintf("feature.node.kubernetes.io/cpu-cpuid.FEATURE%02d", f)] = "true"
	}
	return labels
}

func wholeAnnotations(i int) map[string]string {
	type card struct {
		Name string            `json:"name"`
		Has  map[string]string `json:"has"`
		NUMA int               `json:"numa"`
	}
	var cards []card
	for c := range WholeCards {
		cards = append(cards, card{WholeCard(c), map[string]string{
			Prefix + "shares": "10", Prefix + "millicores": "1000", Prefix + "memory": "64Gi",
		}, c / 4})
	}
	text, _ := json.Marshal(cards) // strings and numbers alone
	return map[string]string{
		"acceld.dev/cards": string(text), "acceld.dev/agent": "pod",
		"nfd.node.kubernetes.io/feature-labels":                  strings.Repeat("cpu-cpuid.FEATURE00,", wholeFeatures),
		"volumes.kubernetes.io/controller-managed-attach-detach": "true",
		"csi.volume.kubernetes.io/nodeid":                        `{"csi.example.com":"` + WholeName(i) + `"}`,
	}
}

// WholeConditions are the conditions of a node that its kubelet and its agent reported at a time.
func WholeConditions(at time.Time) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, c := range []struct {
		kind   corev1.NodeConditionType
		status corev1.ConditionStatus
		text   string
	}{
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, "kubelet has sufficient memory available"},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, "kubelet has no disk pressure"},
		{corev1.NodePIDPressure, corev1.ConditionFalse, "kubelet has sufficient PID available"},
		{corev1.NodeReady, corev1.ConditionTrue, "kubelet is posting ready status"},
		{"AcceleratorsReady", corev1.ConditionTrue, "all accelerators are ready"},
	} {
		out = append(out, corev1.NodeCondition{
			Type: c.kind, Status: c.status, Reason: "Reported", Message: c.text,
			LastHeartbeatTime: metav1.NewTime(at), LastTransitionTime: metav1.NewTime(at.Truncate(time.Hour)),
		})
	}
	return out
}

func images() (out []corev1.ContainerImage) {
	for i := range wholeImages {
		name := fmt.Sprintf("registry.example.com/team-%02d/image", i)
		out = append(out, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("%s@sha256:%064x", name, i), name + ":v1.2.3"}, SizeBytes: 1 << 30,
		})
	}
	return out
}

// WholePod makes a pod that is bound to card c of node i and has so many of its millicores, as the controller binds it.
func WholePod(i, c int, millicores string) *corev1.Pod {
	p := Pod(fmt.Sprintf("job-%05d-%d", i, c), WholeName(i), WholeCard(c),
		Amounts{"shares": "1", "millicores": millicores, "memory": "16Gi"})
	whole(p, fmt.Sprintf("job-%05d", i))
	return p
}

// WholeAgent makes the pod of the agent on node i.
func WholeAgent(i int) *corev1.Pod {
	p := Pod(fmt.Sprintf("acceld-%05d", i), WholeName(i), "", Amounts{})
	p.Namespace = "acceld-system"
	whole(p, "acceld")
	return p
}

// whole adds to a pod what a controller and the defaults of a cluster add.
func whole(p *corev1.Pod, owner string) {
	yes := true
	p.Labels = map[string]string{
		"app.kubernetes.io/name": strings.SplitN(owner, "-", 2)[0], "controller-revision-hash": "7d9c5b6f44",
		"app.kubernetes.io/instance": owner, "pod-template-generation": "1",
	}
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "DaemonSet", Name: owner, UID: "11111111-2222-3333-4444-555555555555",
		Controller: &yes,
	}}
	c := &p.Spec.Containers[0]
	c.Image, c.Args = "registry.example.com/team/image:v1.2.3", []string{strings.Repeat("--argument ", 20)}
	for i := range 10 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", i), Value: "a value of some length"})
	}
}
