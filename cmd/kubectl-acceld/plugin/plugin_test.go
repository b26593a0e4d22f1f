package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/kube"
)

// shelf answers from texts by path.
type shelf map[string]string

func (s shelf) Watch(context.Context, string, url.Values) (io.ReadCloser, error) {
	panic("nothing is watched")
}

func (s shelf) Do(_ context.Context, method, path string, query url.Values, _, into any) error {
	if method != "GET" {
		panic("the plugin changes nothing")
	}
	text, there := s[strings.TrimSuffix(path+"?"+query.Get("continue"), "?")]
	if !there {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", nil)
	}
	return json.Unmarshal([]byte(text), into)
}

func run(t *testing.T, s shelf, args ...string) string {
	t.Helper()
	failed := false
	root := New(&failed, func(string) (kube.API, error) { return s, nil })
	var out bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	if err := root.ExecuteContext(t.Context()); err != nil {
		return out.String() + "error: " + err.Error()
	}
	return out.String()
}

const twoNodes = `{"metadata":{"continue":"more"},"items":[
 {"metadata":{"name":"b","labels":{"acceld.dev/qemu-edu.count":"2","acceld.dev/qemu-edu.driver-version":"1.0.0"}},
  "spec":{"taints":[{"key":"acceld.dev/not-ready","effect":"NoSchedule"}]},
  "status":{"capacity":{"qemu.org/edu":"2"},"allocatable":{"qemu.org/edu":"1"},
   "conditions":[{"type":"AcceleratorsReady","status":"False","reason":"DeviceUnhealthy","message":"0000:01:00.0 \u001b[31mburns"}]}},
 {"metadata":{"name":"plain"},"status":{}}]}`

const moreNodes = `{"items":[{"metadata":{"name":"a","labels":{"acceld.dev/qemu-edu.count":"2","acceld.dev/qemu-edu.product":"edu"}},
  "status":{"capacity":{"qemu.org/edu":"2"},"allocatable":{"qemu.org/edu":"2"},
   "conditions":[{"type":"AcceleratorsReady","status":"True","reason":"Ready"}]}}]}`

const running = `{"metadata":{"name":"r","namespace":"team"},"spec":{"nodeName":"a","containers":[{"name":"m","resources":{"limits":{"qemu.org/edu":"2"}}}]}}`

const waits = `{"metadata":{"name":"w","namespace":"team","uid":"u"},"spec":{"containers":[{"name":"m","resources":{"limits":{"qemu.org/edu":"1","cpu":"1"}}}]},
 "status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available"}]}}`

func cluster() shelf {
	return shelf{
		"/api/v1/nodes": twoNodes, "/api/v1/nodes?more": moreNodes,
		"/api/v1/pods":                      `{"items":[` + running + `,` + waits + `]}`,
		"/api/v1/namespaces/team/pods/w":    waits,
		"/api/v1/namespaces/team/events":    `{"items":[{"type":"Warning","reason":"FailedScheduling","message":"not enough room on any one accelerator card","lastTimestamp":"2026-11-27T10:00:00Z"},{"type":"Normal","reason":"Pulled","message":"routine"}]}`,
		"/api/v1/namespaces/default/events": `{"items":[]}`,
		kube.PoliciesPath: `{"items":[{"metadata":{"name":"fleet"},"status":{"nodes":{"matched":3,"ready":1,"waiting":2},
			"conditions":[{"type":"Ready","status":"False","reason":"Waiting","message":"2 nodes wait"}],
			"blocked":[{"reason":"HoldersPresent","count":2,"example":"node a: pod team/r"}]}}]}`,
	}
}

func TestNodes(t *testing.T) {
	got := run(t, cluster(), "nodes")
	want := "NODE   READY   KIND       DEVICES   DRIVER    PRODUCT   WHY NOT\n" +
		"a      True    qemu-edu   2         unknown   edu       \n" +
		"b      False   qemu-edu   2         1.0.0     unknown   DeviceUnhealthy: 0000:01:00.0 [31mburns\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestStatus(t *testing.T) {
	got := run(t, cluster(), "status")
	for _, want := range []string{
		"agent: 2, ready: 1\n", "qemu-edu: 4 devices\n", "ask for devices: 1\n", "explain team/w\n", "DeviceUnhealthy",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	s := cluster()
	delete(s, "/api/v1/pods")
	if got := run(t, s, "status"); !strings.Contains(got, "pods that wait: unknown") {
		t.Error(got)
	}
}

func TestPolicy(t *testing.T) {
	for args, want := range map[string]string{
		"policy":       "fleet    3       1       0           2         0        Waiting",
		"policy fleet": "2 blocked by HoldersPresent, such as: node a: pod team/r",
		"policy other": `there is no policy "other"`,
	} {
		if got := run(t, cluster(), strings.Fields(args)...); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", args, want, got)
		}
	}
}

// TestExplain: each reason for which a pod waits or fails is said, and what could not be read is.
func TestExplain(t *testing.T) {
	change := func(old, now string) shelf {
		s := cluster()
		for path, text := range s {
			s[path] = strings.Replace(text, old, now, 1)
		}
		return s
	}
	pod := func(text string) shelf {
		s := cluster()
		s["/api/v1/namespaces/team/pods/w"] = text
		return s
	}
	unread := cluster()
	delete(unread, "/api/v1/pods")
	for name, c := range map[string]struct {
		s    shelf
		want []string
	}{
		"no free device, and a taint": {cluster(), []string{
			"pod team/w is pending, on no node yet\n", "it asks for 1 of qemu.org/edu\n", "the scheduler says Unschedulable",
			"such as a: 0 of 2 qemu.org/edu are free\n", "such as b: the pod does not tolerate its taint acceld.dev/not-ready",
			"event at 2026-11-27T10:00:00Z, FailedScheduling: not enough room",
		}},
		"one of its devices is free": {change(`{"key":"acceld.dev/not-ready","effect":"NoSchedule"}`, ``), []string{
			"such as b: it has enough free devices",
		}},
		"a sick device and no other": {
			change(`"spec":{"taints":[{"key":"acceld.dev/not-ready","effect":"NoSchedule"}]},
  "status":{"capacity":{"qemu.org/edu":"2"},"allocatable":{"qemu.org/edu":"1"}`, `"status":{"capacity":{"qemu.org/edu":"2"},"allocatable":{"qemu.org/edu":"0"}`),
			[]string{"such as b: 0 of 0 qemu.org/edu are free, and 2 more are not healthy; DeviceUnhealthy: 0000:01:00.0"},
		},
		"a resource that no node has": {pod(strings.ReplaceAll(waits, "qemu.org/edu", "example.com/npu")), []string{
			"node b is not ready for devices: DeviceUnhealthy", "no node offers what it asks for",
		}},
		"the hook refuses": {pod(`{"metadata":{"name":"w","namespace":"team"},"spec":{"nodeName":"a"},"status":{"phase":"Pending",
			"containerStatuses":[{"name":"m","state":{"waiting":{"reason":"RunContainerError","message":"acceld: device is not ready"}},
			"allocatedResourcesStatus":[{"name":"qemu.org/edu","resources":[{"resourceID":"x","health":"Unhealthy"}]}]}]}}`), []string{
			"is pending on node a", `container "m" waits: RunContainerError: acceld: device is not ready`, "asks for no device",
			`has device "x" of qemu.org/edu, which is unhealthy`,
		}},
		"the kubelet refuses": {pod(`{"metadata":{"name":"w","namespace":"team"},"spec":{"nodeName":"a"},"status":{"phase":"Failed",
			"reason":"UnexpectedAdmissionError","message":"the scheduler chose 0000-01-00.0"}}`), []string{
			"the kubelet says UnexpectedAdmissionError: the scheduler chose 0000-01-00.0",
		}},
		"it has failed": {pod(`{"metadata":{"name":"w","namespace":"team"},"spec":{"nodeName":"a"},"status":{"phase":"Failed",
			"containerStatuses":[{"name":"m","state":{"terminated":{"reason":"Error","exitCode":3}}}]}}`), []string{
			`container "m" has failed: Error, exit code 3`,
		}},
		"pods that may not be read": {unread, []string{"whether they are free is not known", "not known: cannot read /api/v1/pods"}},
	} {
		got := run(t, c.s, "explain", "team/w")
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", name, want, got)
			}
		}
	}
	if got := run(t, cluster(), "explain", "-n", "team", "gone"); !strings.Contains(got, "error: cannot read pod team/gone") {
		t.Error(got)
	}
}
