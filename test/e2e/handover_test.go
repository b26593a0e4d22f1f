package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// passedOn is how many pods get the device one after the other; ACCELD_HANDOVERS asks for more.
const passedOn = 12

// TestHandover passes one device from pod to pod. Each says what it finds in the device's memory, and leaves its own
// text there.
func TestHandover(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, byDevicePlugin))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), g))
	reaches(t, g, accel.Ready, 5*time.Minute)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 1))
	inOrder(
		t, n, image,
		part{"without it the next pod reads what the last one left", leaks},
		part{"pod after pod", handedFromPodToPod},
		part{"the agent is killed at any moment", handedOverKills},
		part{"a process that outlives its pod", leftoverOfPod},
		part{"claim after claim", handedFromClaimToClaim},
	)
}

// cleans configures that the device is cleaned between its tenants.
func cleans(t *testing.T, n *bed.Node, leftovers accel.Leftovers, more string) {
	t.Helper()
	stage.Check(t, n.WriteFile(t.Context(), "/etc/acceld/config.yaml", fmt.Appendf(nil, `%skinds:
  qemu-edu:
    handover: {leftovers: %s, scrub: attribute, file: scrub, timeout: 1m}
`, more, leftovers), 0o644))
	_, err := stage.WaitMachine(stage.Within(t, 2*soon), n.Guest, "the hand-over to be in force", func(m accel.Machine) bool {
		def := m.Want.Kinds[stage.Kind]
		if def.Handover == nil || def.Handover.Leftovers != leftovers {
			return false
		}
		return slices.ContainsFunc(m.Have[stage.Kind].Accelerators, func(a accel.Accelerator) bool {
			return a.Handover != nil && a.Handover.State == accel.HandoverClean
		})
	})
	stage.Check(t, err)
}

// podJob is a Job of pods that have the device one after the other.
func podJob(name, image string, count int) []byte {
	return fmt.Appendf(nil, `apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: default}
spec:
  completions: %d
  parallelism: 2
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: compute
        image: %s
        args: ["-expect", "1", "-leave", "canary of %[1]s"]
        resources: {limits: {%[4]s: 1}}
`, name, count, image, stage.Resource)
}

// found runs a Job to its end, with something beside it, and returns what its pods found in the device's memory. No pod
// may fail. With something beside it the kubelet may refuse some: a call to a plugin that dies is a refusal for good.
func found(t *testing.T, n *bed.Node, name string, count int, job []byte, beside func()) (all []string) {
	t.Helper()
	ctx := stage.Within(t, time.Duration(count)*time.Minute)
	begin := time.Now()
	if beside != nil {
		job = bytes.Replace(job, []byte("backoffLimit: 0"), fmt.Appendf(nil, "backoffLimit: %d", count), 1)
	}
	apply(t, n, job)
	for {
		job, err := clientset.Of(n).BatchV1().Jobs("default").Get(ctx, name, metav1.GetOptions{})
		stage.Check(t, err)
		if job.Status.Failed > 0 && beside == nil || int(job.Status.Failed) > count {
			t.Errorf("pods failed: %+v", job.Status)
			break
		}
		if int(job.Status.Succeeded) == count {
			break
		}
		if beside != nil {
			beside()
		}
		time.Sleep(time.Second)
	}
	t.Logf("%d pods, %.1f s each", count, time.Since(begin).Seconds()/float64(count))
	pods, err := clientset.Of(n).CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + name})
	stage.Check(t, err)
	refused := 0
	for _, p := range pods.Items {
		if beside != nil && p.Status.Reason == "UnexpectedAdmissionError" {
			t.Logf("pod %s: %s", p.Name, p.Status.Message)
			refused++
			continue
		}
		log, err := n.PodLog(ctx, "default", p.Name)
		stage.Check(t, err)
		_, text, _ := strings.Cut(log, "found ")
		text, _, _ = strings.Cut(text, "\n")
		all = append(all, text)
		if p.Status.Phase != corev1.PodSucceeded {
			t.Errorf("pod %s: %+v", p.Name, p.Status)
		}
	}
	if len(all) != count {
		t.Errorf("%d pods, want %d", len(all), count)
	}
	if beside != nil {
		t.Logf("%d pods were refused by the kubelet", refused)
	}
	_, err = n.Kubectl(ctx, nil, "-n", "default", "delete", "job/"+name, "--wait", "--cascade=foreground")
	stage.Check(t, err)
	return all
}

// nothing holds that no pod found anything.
func nothing(t *testing.T, n *bed.Node, all []string) {
	t.Helper()
	if read := slices.DeleteFunc(all, func(text string) bool { return text == "nothing" }); len(read) > 0 {
		t.Errorf("%d pods found what another had left: %q", len(read), read)
	}
	m, err := stage.Machine(stage.Within(t, soon), n.Guest)
	stage.Check(t, err)
	for _, a := range m.Have[stage.Kind].Accelerators {
		if a.Handover != nil {
			t.Logf("%s: %s; %.3f s each", a.ID, a.Handover, a.Handover.Seconds/float64(max(1, a.Handover.Cleaned)))
		}
	}
}

func handovers() int { return wanted("ACCELD_HANDOVERS", passedOn) }

func leaks(t *testing.T, n *bed.Node, image string) {
	all := found(t, n, "leak", 3, podJob("leak", image, 3), nil)
	t.Logf("found %q", all)
	if !slices.Contains(all, `"canary of leak"`) {
		t.Error("the canary is of no use: nobody has read it")
	}
}

func handedFromPodToPod(t *testing.T, n *bed.Node, image string) {
	cleans(t, n, accel.LeftoversReport, byDevicePlugin)
	nothing(t, n, found(t, n, "pods", handovers(), podJob("pods", image, handovers()), nil))
	t.Logf("acceld status:\n%s", sh(t, n.Guest, "acceld status; acceld history "+sh(t, n.Guest, "acceld history | awk 'END {print $1}'")))
}

func handedOverKills(t *testing.T, n *bed.Node, image string) {
	killedOver(t, n, "kills", podJob("kills", image, handovers()))
}

// killedOver runs a Job while the agent is killed over and over, and holds that no pod found anything. Two of five
// times it is ready before, however slow the guest is: now and then it must have the time to do its work.
func killedOver(t *testing.T, n *bed.Node, name string, job []byte) {
	t.Helper()
	sh(t, n.Guest, startsAtOnce)
	step, kills := restartTime(t, n.Guest)/2, 0
	all := found(t, n, name, handovers(), job, func() {
		sh(t, n.Guest, killsAgent)
		kills++
		time.Sleep(time.Duration(kills%5) * step)
	})
	t.Logf("%d kills, up to %s apart", kills, 4*step)
	reaches(t, n.Guest, accel.Ready, soon) // the last agent, too, was killed
	nothing(t, n, all)
}

const killsAgent = "pkill -9 -f '^/usr/bin/acceld run' || true"

// restartTime kills the agent and returns how long it takes until the next one is ready.
func restartTime(t *testing.T, g *bed.Guest) time.Duration {
	t.Helper()
	begin := time.Now()
	sh(t, g, killsAgent)
	reaches(t, g, accel.Ready, soon)
	return time.Since(begin)
}

// startsAtOnce lets systemd start an agent again that was killed often.
const startsAtOnce = `mkdir -p /run/systemd/system/acceld.service.d
	printf '[Unit]\nStartLimitIntervalSec=0\n' > /run/systemd/system/acceld.service.d/limit.conf; systemctl daemon-reload`

// killing kills the agent again and again, at random moments between least and most apart, until stop is called.
func killing(t *testing.T, g *bed.Guest, least, most time.Duration) (stop func()) {
	t.Helper()
	sh(t, g, startsAtOnce)
	sh(t, g, fmt.Sprintf(`systemd-run --quiet --collect --unit=killer sh -c 'while :; do
		sleep "$(shuf -n 1 -i %d-%d)e-3"; systemctl kill -s KILL acceld.service; done'`, least.Milliseconds(), most.Milliseconds()))
	return func() {
		t.Helper()
		sh(t, g, "systemctl stop killer; systemctl start acceld.service")
	}
}

// leftoverOfPod enters the container's mount namespace from the host, as a process that was started in the container
// and has left its control group.
func leftoverOfPod(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 6*time.Minute)
	for _, policy := range []accel.Leftovers{accel.LeftoversReport, accel.LeftoversKill} {
		cleans(t, n, policy, byDevicePlugin)
		stage.Check(t, n.Apply(ctx, stage.Pod("first", image, 1, "-leave", "secret", "-hold", "2h")))
		stage.Check(t, n.WaitPod(ctx, "default", "first", corev1.PodRunning))
		sh(t, n.Guest, `systemd-run --unit=outlives nsenter -t $(pgrep -o edu-check) -m /edu-check -leave secret -hold 2h
			for i in $(seq 100); do test $(pgrep -c edu-check) = 2 && break; sleep 0.1; done; pgrep -c edu-check | grep -qx 2`)
		remove(t, n, "first")
		if policy == accel.LeftoversReport {
			m, err := stage.WaitMachine(ctx, n.Guest, "the device to be withheld", func(m accel.Machine) bool {
				return m.Have[stage.Kind].Accelerators[0].WithheldBy(accel.ByHandover)
			})
			stage.Check(t, err)
			t.Logf("%+v", *m.Have[stage.Kind].Accelerators[0].Withheld)
			stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 0))
			t.Logf("acceld status:\n%s", sh(t, n.Guest, "acceld status || true"))
			sh(t, n.Guest, "systemctl stop outlives")
		}
		stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 1))
		stage.Check(t, n.Apply(ctx, stage.Pod("second", image, 1, "-leave", "other")))
		stage.Check(t, n.WaitPod(ctx, "default", "second", corev1.PodSucceeded))
		log, err := n.PodLog(ctx, "default", "second")
		stage.Check(t, err)
		if !strings.Contains(log, "found nothing") {
			t.Errorf("%s: the next pod: %s", policy, log)
		}
		remove(t, n, "second")
		if left := sh(t, n.Guest, "pgrep edu-check || true"); left != "" {
			t.Errorf("%s: process %s is still there", policy, left)
		}
		sh(t, n.Guest, "systemctl reset-failed outlives || true")
	}
	if n := sh(t, n.Guest, "curl -fsS http://127.0.0.1:9480/metrics | awk '/^accelerator_leftover_processes_killed_total/ {print $2}'"); n != "1" {
		t.Errorf("%s processes were killed, want 1", n)
	}
}

func handedFromClaimToClaim(t *testing.T, n *bed.Node, image string) {
	cleans(t, n, accel.LeftoversReport, byClaims)
	offers(t, n, 1)
	apply(t, n, stage.ClaimTemplate("passed"))
	all := found(t, n, "claims", handovers(), stage.ClaimJob("claims", image, "resourceClaimTemplateName: passed",
		handovers(), 2, "-expect", "1", "-leave", "canary of claims"), nil)
	nothing(t, n, all)
	killedOver(t, n, "killed", stage.ClaimJob("killed", image, "resourceClaimTemplateName: passed", handovers(), 2,
		"-expect", "1", "-leave", "canary of claims"))
	_, err := n.Kubectl(stage.Within(t, soon), nil, "-n", "default", "delete", "resourceclaimtemplate/passed", "--wait")
	stage.Check(t, err)
}

// ociBundle is a container of the OCI runtime that has one device, with what the device's CDI spec brings.
func ociBundle(d specs.Device, major, minor int64) []byte {
	type object = map[string]any
	node := d.ContainerEdits.DeviceNodes[0]
	var hooks []object
	for _, h := range d.ContainerEdits.Hooks {
		hooks = append(hooks, object{"path": h.Path, "args": h.Args, "env": h.Env, "timeout": *h.Timeout})
	}
	text, err := json.Marshal(object{
		"ociVersion": "1.0.2",
		"process": object{
			"user": object{"uid": 0, "gid": 0}, "cwd": "/", "env": []string{"PATH=/"},
			"args": []string{"/edu-check", "-expect", "1", "-leave", "canary of a container"},
		},
		"root":   object{"path": "rootfs"},
		"mounts": []object{{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}},
		"hooks":  object{"createRuntime": hooks},
		"linux": object{
			"namespaces": []object{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}},
			"devices":    []object{{"path": node.Path, "type": "c", "major": major, "minor": minor}},
			"resources": object{"devices": []object{
				{"allow": false, "access": "rwm"},
				{"allow": true, "type": "c", "major": major, "minor": minor, "access": "rw"},
			}},
		},
	})
	if err != nil {
		panic(err) // texts and numbers
	}
	return text
}

// killsOverContainers is about how often the agent is killed at most while devices pass from container to container.
const killsOverContainers = 500

// TestHandoverOfContainers passes four devices from container to container on a host without a kubelet, while the agent
// is killed over and over.
func TestHandoverOfContainers(t *testing.T) {
	const devices = 4
	n, s := stage.StartNode(t, bed.Options{Accelerators: devices, NoKubernetes: true})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, ""))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	stage.Check(t, s.Enable(t.Context(), g))
	reaches(t, g, accel.Ready, 5*time.Minute)
	cleans(t, n, accel.LeftoversKill, "")
	sh(t, g, "until grep -q '\"timeout\": 65' /var/run/cdi/qemu.org-edu.json; do sleep 0.2; done")
	var spec specs.Spec
	stage.Check(t, json.Unmarshal([]byte(sh(t, g, "cat /var/run/cdi/qemu.org-edu.json")), &spec))
	each := max(1, handovers()/devices)
	var run strings.Builder
	for i, d := range spec.Devices[:devices] {
		dir := fmt.Sprintf("/root/bundles/%d", i)
		var major, minor int64
		_, err := fmt.Sscanf(sh(t, g, `stat -c '%Hr %Lr' "$1"`, d.ContainerEdits.DeviceNodes[0].Path), "%d %d", &major, &minor)
		stage.Check(t, err)
		sh(t, g, `mkdir -p "$1"/rootfs/dev && cp /usr/bin/edu-check "$1"/rootfs/`, dir)
		stage.Check(t, g.WriteFile(t.Context(), dir+"/config.json", ociBundle(d, major, minor), 0o644))
		fmt.Fprintf(&run, `(for i in $(seq %d); do runc run --bundle %s passed-%d-$i || echo "failed: $?"; done > /tmp/passed-%[3]d 2>&1) &
`, each, dir, i)
	}
	sh(t, g, startsAtOnce)
	// Of agents that are killed again and again, some must live until they serve.
	pause := max(500*time.Millisecond, restartTime(t, g)/2)
	// Of many containers most have an agent that lives: each of its starts takes as long as some hand-overs.
	apart := each * devices / killsOverContainers
	begin := time.Now()
	sh(t, g, "cat > /root/run <<'EOF'\n"+run.String()+"wait\nEOF\nsystemd-run --unit=passing --service-type=exec sh /root/run")
	kills := 0
	for sh(t, g, "systemctl is-active passing || true") == "active" {
		time.Sleep(time.Duration(1+kills%7) * pause)
		passed, err := strconv.Atoi(sh(t, g, "cat /tmp/passed-* | grep -c found || true"))
		stage.Check(t, err)
		if passed >= kills*apart {
			sh(t, g, killsAgent)
			kills++
		}
	}
	took := time.Since(begin).Seconds()
	counted := strings.Fields(sh(t, g, `for what in 'found nothing' 'found "' 'failed' 'is not ready'; do cat /tmp/passed-* | grep -c "$what" || true; done`))
	t.Logf("%d containers on %d devices, %.2f s each, %d kills of the agent: found nothing, a canary, failed, refused: %v",
		devices*each, devices, took*devices/float64(devices*each), kills, counted)
	if want := []string{fmt.Sprint(devices * each), "0", "0", "0"}; !slices.Equal(counted, want) {
		t.Errorf("%v, want %v:\n%s", counted, want, sh(t, g, "grep -h -v 'found nothing\\|serial\\|PASS' /tmp/passed-* | sort | uniq -c | head -20"))
	}
	reaches(t, g, accel.Ready, soon) // the last agent, too, was killed
	t.Logf("%s", sh(t, g, "curl -fsS http://127.0.0.1:9480/metrics | grep '^accelerator_handover'"))
}
