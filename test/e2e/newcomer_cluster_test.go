package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/test/prometheus"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestNewcomerCluster reads the pages about a cluster from top to bottom in one with one node: what the README says
// about a cluster first, installing and removing in every way last.
func TestNewcomerCluster(t *testing.T) {
	vm.Require(t)
	w := &world{
		t: t, chapters: clusterChapters(), installed: released, strip: uninstalled, ready: nodeReady,
		o:       bed.Options{Accelerators: 1},
		prepare: func(w *world) { stage.Check(w.t, w.s.Source(w.t.Context(), w.n.Guest)) },
	}
	for _, c := range w.chapters {
		t.Run(c.name, func(t *testing.T) { w.read(t, c) })
	}
}

// released tells whether Helm has installed acceld.
func released(w *world) bool {
	out, err := w.s.Helm(stage.Within(w.t, soon), w.n, "list", "-q", "-n", agents)
	stage.Check(w.t, err)
	return strings.TrimSpace(out) == "acceld"
}

func uninstalled(r *reader) {
	out, err := r.s.Helm(stage.Within(r.t, 10*time.Minute), r.n, "uninstall", "acceld", "-n", agents, "--wait",
		"--timeout", "8m")
	stage.Check(r.t, err)
	r.t.Logf("%s", out)
}

// nodeReady waits until the node's agent is ready and has said so, and the controller is the leader.
func nodeReady(r *reader) {
	reaches(r.t, r.n.Guest, accel.Ready, patience)
	stage.Check(r.t, r.n.WaitCondition(stage.Within(r.t, soon), kube.ConditionType, "True", ""))
	stage.Check(r.t, r.n.WaitAllocatable(stage.Within(r.t, soon), stage.Resource, 1))
	r.must("kubectl -n " + agents + " rollout status deployment/acceld-controller --timeout=3m")
	r.must("kubectl -n " + agents +
		" wait endpointslice/acceld-controller --for='jsonpath={.endpoints[0].targetRef.name}' --timeout=1m")
}

// clusterChapters are what is read in a cluster, in this order.
func clusterChapters() []chapter {
	return []chapter{
		{name: "readme", page: "README.md", only: []string{"on-a-cluster"}, bare: true},
		{name: "status", page: "docs/status.md", only: []string{"in-a-browser-the-cluster"}},
		{name: "policies", page: "docs/policies.md", before: []stop{
			{"kubectl get acceleratorpolicies", func(r *reader) {
				apply(r.t, r.n, []byte(r.page("kind: AcceleratorPolicy", "name: edu\n")))
			}},
		}, after: func(r *reader) { noPolicy(r, "edu") }},
		{name: "history", page: "docs/health.md", only: []string{"in-the-cluster"}, before: []stop{
			{"kubectl get acceleratordevices", recorded},
		}, after: func(r *reader) { noPolicy(r, history) }},
		{name: "partitions", page: "docs/partitions.md"},
		{name: "claims", page: "docs/claims.md"},
		{name: "monitoring", page: "docs/monitoring.md", before: []stop{
			{"kubectl apply -k packaging/monitoring", prometheusOperator},
		}, after: func(r *reader) {
			_, err := r.n.Kubectl(r.t.Context(), nil, "delete", "-k", r.s.File("packaging/monitoring"),
				"--ignore-not-found")
			stage.Check(r.t, err)
		}},
		{name: "scheduling", page: "docs/scheduling.md", before: []stop{
			{"for name in ca.crt", func(r *reader) { // the controller makes them when it becomes the leader
				r.must(
					`kubectl -n acceld-system wait secret/acceld-controller-tls --for='jsonpath={.data.client\.key}' --timeout=2m`)
			}},
			{"sudo install", func(r *reader) { // the host of the control plane is the node here
				for _, file := range []string{"ca.crt", "client.crt", "client.key"} {
					r.carry(file)
				}
			}},
			// the page's pod waits, by the name that the question has
			{"kubectl -n acceld-system port-forward", func(r *reader) {
				apply(r.t, r.n, []byte(strings.Replace(r.page("name: two-cards"), "name: two-cards", "name: job", 1)))
			}},
		}, after: func(r *reader) {
			remove(r.t, r.n, "job")
			r.tidy("rm -rf /etc/kubernetes/acceld /root/ca.crt /root/client.crt /root/client.key")
			_, err := r.n.Kubectl(r.t.Context(), nil, "delete", "-k", r.s.File("packaging/manifests/cards"),
				"--ignore-not-found")
			stage.Check(r.t, err)
		}},
		{name: "migration", page: "docs/migration.md", bare: true, before: migrationStops(), after: noPeers},
		{name: "install", page: "docs/install.md", bare: true, before: []stop{
			{"helm upgrade", func(r *reader) { // the next version is the same program here
				release(r, "acceld/acceld")
				release(r, "acceld/acceld-controller")
			}},
			{"kubectl get acceleratorpolicies", func(r *reader) { // what was upgraded is up before it goes
				r.must("kubectl -n acceld-system rollout status daemonset/acceld --timeout=10m")
				nodeReady(r)
			}},
			{"kubectl delete -k packaging/manifests/controller", func(r *reader) {
				r.must("kubectl -n acceld-system rollout status daemonset/acceld --timeout=10m")
				nodeReady(r)
			}},
		}},
	}
}

// noPolicy deletes a policy, if it is there.
func noPolicy(r *reader, name string) {
	_, err := r.n.Kubectl(r.t.Context(), nil, "delete", "acceleratorpolicy", name, "--ignore-not-found", "--timeout=60s")
	stage.Check(r.t, err)
}

// history is the policy of docs/policies.md that records devices.
const history = "edu-history"

// recorded applies the policy that the page links to, and waits until the cluster has a record of a device.
func recorded(r *reader) {
	r.t.Helper()
	policies := r.pages["docs/policies.md"]
	i := slices.IndexFunc(policies, func(s step) bool { return strings.Contains(s.text, "name: "+history+"\n") })
	if i < 0 {
		r.t.Fatalf("docs/policies.md has no policy %s", history)
	}
	apply(r.t, r.n, []byte(policies[i].text))
	r.must("for i in $(seq 120); do kubectl get acceleratordevices -o name | grep . && exit; sleep 2; done; exit 1")
}

// release gives the image of version v1 the name of v2.
func release(r *reader, repository string) {
	r.t.Helper()
	from, err := name.NewTag(r.n.Registry() + "/" + repository + ":v1")
	stage.Check(r.t, err)
	ctx := stage.Within(r.t, soon)
	image, err := remote.Get(from, remote.WithContext(ctx))
	stage.Check(r.t, err)
	stage.Check(r.t, remote.Tag(from.Tag("v2"), image, remote.WithContext(ctx)))
}

// prometheusOperator makes what of the Prometheus operator the page needs: its namespace, and the definitions of its
// kinds, its own. Nobody acts on them here; TestOperator of test/prometheus has a real operator.
func prometheusOperator(r *reader) {
	r.t.Helper()
	kinds := []string{"servicemonitors", "podmonitors", "prometheusrules"}
	definitions, err := prometheus.Definitions(stage.Within(r.t, soon), kinds...)
	stage.Check(r.t, err)
	apply(r.t, r.n, append(definitions,
		[]byte("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: monitoring}\n"))...)
	r.must("kubectl wait --for=condition=Established --timeout=60s crd/" + strings.Join(kinds,
		".monitoring.coreos.com crd/") + ".monitoring.coreos.com")
}
