package e2e

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// nothingToBuildWith takes from a host what a build of a driver needs.
const nothingToBuildWith = `rm -rf "/lib/modules/$(uname -r)/build" "/lib/modules/$(uname -r)/source" /usr/src/linux-headers-* /usr/lib/linux-kbuild-*
rm -f /usr/bin/gcc* /usr/bin/cc /usr/bin/make /usr/bin/x86_64-linux-gnu-gcc*
! command -v gcc && ! command -v make`

// TestWholeDriver: a DaemonSet brings a host without compiler, headers and user space to a pod whose image has no
// library of the driver and which computes through it, whatever the driver comes from. After each of them a purge
// leaves the host as it was.
func TestWholeDriver(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	w := newWhole(t, n, s)
	inOrder(t, n, w.app,
		part{"from one image", w.fromImage},
		part{"from a bundle, with no registry in reach", w.fromBundle},
		part{"built in a builder image, with a daemon", w.fromBuilder},
		part{"from packages of a repository", w.fromPackages},
	)
}

// whole is a node that has nothing of a driver and nothing to build one with, and what a driver may come from.
type whole struct {
	*bed.Node
	stage *stage.Stage
	// root is the image of the whole driver, builder the one with a compiler, app that of the pods.
	root, builder, app string
	repository         *stage.Packages
	// before are the files of the host.
	before string
}

// The files of the host that the definitions name.
const (
	archiveKey  = "/etc/acceld/archive.gpg"
	bundle      = "/var/tmp/edu.tar"
	definitions = "/etc/acceld/definitions.d"
)

func newWhole(t *testing.T, n *bed.Node, s *stage.Stage) *whole {
	t.Helper()
	w := &whole{Node: n, stage: s}
	root, err := s.Root(t.Context(), n.Guest, "edu-root:"+stage.Version, stage.Version, stage.Version)
	stage.Check(t, err)
	w.root, w.builder = root, builderImage(t, n.Guest, s)
	w.app, err = s.App(t.Context(), n)
	stage.Check(t, err)
	w.repository, err = s.Packages(t.Context(), n.Guest, stage.Version)
	stage.Check(t, err)
	t.Cleanup(w.repository.Close)
	stage.Check(t, n.WriteFile(t.Context(), archiveKey, w.repository.Key, 0o644))
	for _, program := range []string{"acceld", "tree"} { // to purge, and to compare
		stage.Check(t, n.Put(t.Context(), s.Program(program), "/usr/bin/"+program, 0o755))
	}
	sh(t, n.Guest, "mkdir -p "+definitions+"; "+nothingToBuildWith)
	w.before = files(t, n.Guest)
	return w
}

// fromImage: one image has modules, libraries and programs.
func (w *whole) fromImage(t *testing.T, _ *bed.Node, _ string) {
	stage.Check(t, w.stage.Whole(t.Context(), w.Guest, w.root, stage.Version))
	w.serves(t, "", "")
	t.Logf("%s", w.acceld(t, "driver", "bundle", "export", stage.Kind, bundle))
	w.withdraw(t)
	w.purge(t)
}

// fromBundle: no registry is needed for what a host has exported.
func (w *whole) fromBundle(t *testing.T, _ *bed.Node, _ string) {
	stage.Check(t, w.stage.WholeFrom(t.Context(), w.Guest, "[{type: bundle, path: "+bundle+"}]", "{}", stage.Version))
	address, _, _ := strings.Cut(w.root, "/")
	server, port, _ := strings.Cut(address, ":")
	sh(t, w.Guest, `iptables -I OUTPUT -p tcp -d "$1" --dport "$2" -j REJECT; ! curl -fsS -m 5 "http://$1:$2/v2/"`, server, port)
	defer sh(t, w.Guest, `iptables -D OUTPUT -p tcp -d "$1" --dport "$2" -j REJECT`, server, port)
	w.serves(t, "", "")
	w.withdraw(t)
	w.purge(t)
}

// fromBuilder: the compiler is in an image, headers and source are in packages, the user space is in another image. A
// daemon of the driver is started by the agent in its pod and yet is the host's.
func (w *whole) fromBuilder(t *testing.T, _ *bed.Node, _ string) {
	sources := w.build(w.builder, w.repository.URL)
	userSpace := fmt.Sprintf("{sources: [{type: oci, image: %q, plainHTTP: true}]}", w.root) + stage.Companion("")
	stage.Check(t, w.stage.WholeFrom(t.Context(), w.Guest, sources, userSpace, stage.Version))
	w.serves(t, "", "")
	unmounted(t, w.Guest)
	daemon := companionRuns(t, w.Guest, stage.Version)
	w.withdraw(t)
	if now := companionRuns(t, w.Guest, stage.Version); now != daemon {
		t.Errorf("the daemon is process %s without the agent, %s before", now, daemon)
	}
	w.purge(t)
	sh(t, w.Guest, `test "$(systemctl is-active "$1")" = inactive; test ! -e /run/edu-stay`, companion)
}

// fromPackages: the definition says where the distribution has headers, source, libraries and programs, and which image
// has a compiler, all under names that only the mirrors in the agent's configuration can reach.
func (w *whole) fromPackages(t *testing.T, _ *bed.Node, _ string) {
	const archive, registry = "http://deb.example/debian", "registry.example"
	libraries := strings.Replace(w.packages(archive, "'libedu1={{.DriverVersion}}', 'edu-smi={{.DriverVersion}}'"), "{",
		"{type: packages, ", 1)
	stage.Check(t, w.stage.WholeFrom(t.Context(), w.Guest, "[{type: distribution}]", fmt.Sprintf(
		"{}\n  distributions:\n    - os: [debian12]\n      sources: %s\n      userSpace: [%s]",
		w.build(path.Join(registry, path.Base(w.builder)), archive), libraries), stage.Version))
	w.serves(t, configMap(t),
		fmt.Sprintf("mirrors: {%s: [%q], %q: [%q]}\n", registry, path.Dir(w.builder), archive, w.repository.URL))
	unmounted(t, w.Guest)
	w.withdraw(t)
	w.purge(t)
}

// configMap is what the documentation lays over the manifests to give the agents a config.yaml.
func configMap(t *testing.T) string {
	t.Helper()
	pages, err := book("../..")
	stage.Check(t, err)
	page := pages["docs/install.md"]
	return page[slices.IndexFunc(page, func(s step) bool { return strings.HasPrefix(s.text, "configMapGenerator:") })].text
}

// build is the sources of a definition whose driver is built in an image, with headers and source out of packages.
func (w *whole) build(builder, archive string) string {
	needs := w.packages(archive,
		`'linux-headers-{{.KernelVersion}}', 'linux-headers-{{.KernelBase}}-common', linux-kbuild-6.1, 'edu-source={{.DriverVersion}}'`)
	return fmt.Sprintf("[{type: build, path: '/usr/src/edu-{{.DriverVersion}}', image: %q, plainHTTP: true, needs: [%s]}]",
		builder, needs)
}

// packages is a set of packages in a definition.
func (w *whole) packages(archive, names string) string {
	return fmt.Sprintf("{format: deb, url: %q, suite: stable, components: [main], keys: [%s], packages: [%s]}", archive,
		archiveKey, names)
}

// serves deploys the agents, with what a kustomization and its config.yaml lay over them, and waits until a pod has
// computed. Nothing of the driver is in the host's own directories.
func (w *whole) serves(t *testing.T, over, config string) {
	t.Helper()
	timed(t, "DaemonSet applied -> every state ready", func() {
		stage.Check(t, w.stage.DeployOver(t.Context(), w.Node, over, config))
		reaches(t, w.Guest, accel.Ready, 20*time.Minute)
	})
	logDurations(t, w.Guest)
	ctx := stage.Within(t, 5*time.Minute)
	stage.Check(t, w.WaitAllocatable(ctx, stage.Resource, 2))
	timed(t, "pod applied -> it computed through libedu", func() {
		stage.Check(t, w.Apply(ctx, stage.Pod("app", w.app, 1)))
		stage.Check(t, w.WaitPod(ctx, "default", "app", corev1.PodSucceeded))
	})
	log, err := w.PodLog(ctx, "default", "app")
	stage.Check(t, err)
	if !strings.Contains(log, "edu-app: library 1.0.0: /dev/edu") || strings.Count(log, "3628800") != 1 {
		t.Errorf("log of the pod: %s", log)
	}
	remove(t, w.Node, "app")
	if out := w.acceld(t, "exec", stage.Kind, "--", "edu-smi"); !strings.Contains(out, "edu-smi 1.0.0, module 1.0.0") ||
		strings.Count(out, "EDU-0000") != 2 {
		t.Errorf("acceld exec: %s", out)
	}
	t.Logf("%s", w.acceld(t, "status"))
	t.Logf("%s", sh(t, w.Guest, "du -sh /var/lib/acceld/*"))
	// acceld's own directories, and its hook of CRI-O.
	const installed = `find / -xdev \( -path /var/lib/acceld -o -path /var/lib/containers -o -path /var/lib/kubelet -o -path /usr/local/lib/acceld \
	-o -path /usr/share/containers/oci/hooks.d/50-acceld.json \) -prune \
	-o \( -name 'libedu*' -o -path '/usr/*' -type f -newer "$1" \) -print`
	if out := sh(t, w.Guest, installed, definitions+"/edu.yaml"); out != "" {
		t.Errorf("the host has %s", out)
	}
}

// acceld runs a command of the program in the agent's pod, and returns what it said.
func (w *whole) acceld(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.Kubectl(t.Context(), nil, append([]string{
		"-n", agents, "exec", "ds/acceld", "--", "/acceld", "--host-root", "/host",
	}, args...)...)
	stage.Check(t, err)
	return out
}

// withdraw removes the agent and nothing else.
func (w *whole) withdraw(t *testing.T) {
	t.Helper()
	stage.Check(t, w.Delete(t.Context(),
		[]byte("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: acceld, namespace: acceld-system}}")))
	settled(t, w.Node)
}

// purge takes back what an agent that is no more has done, and looks for what is not as it was.
func (w *whole) purge(t *testing.T) {
	t.Helper()
	t.Logf("acceld purge:\n%s", sh(t, w.Guest, "acceld purge; test ! -e /sys/module/edu"))
	if diff := stage.Unlike(w.before, files(t, w.Guest), definitions); diff != "" {
		t.Errorf("the host is not as it was:\n%s", diff)
	}
}
