package policy

import (
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/kube"
	cluster "github.com/acceld/acceld/test/fleet"
)

// What is kept of a node and of the pod of its agent, in bytes. A node is read in 18 KB.
const (
	keptNode  = 480
	keptAgent = 300
)

// TestKept: whatever others write about nodes and pods, little of it is kept.
func TestKept(t *testing.T) {
	const many = 1000
	keep(t, "node", keptNode, func(i int) *Node { return reread[Node](t, cluster.WholeNode(i)) }, many)
	keep(t, "agent", keptAgent, func(i int) *agent { return reread[agent](t, cluster.WholeAgent(i)) }, many)
}

func keep[T any](t *testing.T, what string, most int64, read func(i int) *T, many int) {
	t.Helper()
	read(0)
	before := heap()
	all := make([]*T, many)
	for i := range all {
		all[i] = read(i)
	}
	each := (heap() - before) / int64(many)
	t.Logf("%d bytes for each %s", each, what)
	if each > most {
		t.Errorf("%d bytes are kept of each %s, at most %d", each, what, most)
	}
	runtime.KeepAlive(all)
}

// reread is an object as it comes from the API server.
func reread[T any](t *testing.T, o any) *T {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	x := new(T)
	if err := json.Unmarshal(text, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// heap is how many bytes are in use.
func heap() int64 {
	for range 3 { // what package unique holds weakly goes with the collections after the one that finds it unused
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLabels: labels say the same as the map that they are made of.
func TestLabels(t *testing.T) {
	for _, all := range []map[string]string{
		{},
		{"": ""},
		{"a": "b"},
		{"a/b": "", "a/c": "x", "a": "a/", "c": "b"},
		{"x.example/a": "1", "example/a": "2", "e": "3"},
		{"acceld.dev/a": "b", "acceld.dev/b": "a", "acceld.dev/ab": "", "acceld.dev/b.a": "b"},
		cluster.WholeNode(1).Labels,
	} {
		const node = "b" // also the value of a label
		l := packed(node, all)
		if !l.has(all) || !l.has(nil) || !l.same(packed(node, maps.Clone(all))) {
			t.Errorf("%v: not what it is made of", all)
		}
		domains, keys := map[string]bool{}, []string{}
		for key, value := range all {
			if got, found := l.find(key); got != value || !found {
				t.Errorf("%v: %q is %q, %v", all, key, got, found)
			}
			domain, _ := parts(key)
			domains[domain] = true
			other := map[string]string{key: value + "x"}
			if l.has(other) || l.same(packed(node, other)) {
				t.Errorf("%v: has %v", all, other)
			}
			for _, absent := range []string{key + "x", "x" + key, key + "/", key + "/" + value, value} {
				if _, there := all[absent]; !there && (l.get(absent) != "" || l.has(map[string]string{absent: ""})) {
					t.Errorf("%v: has %q", all, absent)
				}
			}
		}
		for domain := range domains {
			for key := range l.keys(domain) {
				keys = append(keys, key)
			}
		}
		if want := slices.Sorted(maps.Keys(all)); !slices.Equal(slices.Sorted(slices.Values(keys)), want) {
			t.Errorf("the keys are %q, want %q", keys, want)
		}
	}
}

// FuzzLabels: labels say the same as the map that they are made of, whatever is in it that the API server lets in.
func FuzzLabels(f *testing.F) {
	f.Add("node", "a/b", "c", "a/d", "node", "a")
	f.Add("", "", "", "/", "a=b", "\x00")
	f.Fuzz(func(t *testing.T, node, key1, value1, key2, value2, other string) {
		all := map[string]string{key1: value1, key2: value2}
		for key, value := range all {
			if strings.ContainsAny(node+key+value+other, beforeName+beforeValue+ownName) {
				t.Skip("the API server lets none of these characters into a label")
			}
		}
		l := packed(node, all)
		for _, key := range []string{key1, key2, other} {
			want, there := all[key]
			if got, found := l.find(key); got != want || found != there {
				t.Errorf("%q of %q is %q, %v", key, all, got, found)
			}
		}
		domain, _ := parts(key1)
		for key := range l.keys(domain) {
			if _, there := all[key]; !there {
				t.Errorf("%q is not in %q", key, all)
			}
		}
	})
}

// TestRead: of a node, what decides is read, wherever it is in the text.
func TestRead(t *testing.T) {
	whole := cluster.WholeNode(3)
	whole.Spec.Unschedulable = true
	whole.Spec.Taints = []corev1.Taint{{Key: "example.com/x", Effect: corev1.TaintEffectNoSchedule}}
	n := reread[Node](t, whole)
	if n.Name != whole.Name || !n.has("qemu-edu") || !n.serves("qemu-edu") || n.condition("Ready").Status != "True" ||
		n.condition(kube.ConditionType).Status != "True" || !n.Spec.Unschedulable || len(n.Spec.Taints) != 1 ||
		n.Annotations.get(kube.OriginAnnotation) != kube.OriginPod || len(n.Annotations) != 1 ||
		!n.Labels.has(whole.Labels) {
		t.Errorf("read as %+v", n)
	}
	pod := cluster.WholeAgent(3)
	pod.ResourceVersion = "7"
	a := reread[agent](t, pod)
	if a.Key() != "acceld-system/acceld-00003" || a.Spec.NodeName != cluster.WholeName(3) || a.UID != string(pod.UID) ||
		a.ResourceVersion != "7" {
		t.Errorf("read as %+v", a)
	}
}
