package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// drains are the nodes that are being drained. The state is in memory only: a new controller lists the pods again.
type drains struct {
	api  client
	log  *slog.Logger
	poke func()

	mu    sync.Mutex
	group guard.Group
	nodes map[string]*draining
}

// draining is one node. Its fields are read and written under the lock of drains.
type draining struct {
	policy string // the policy that asked for the drain
	how    accel.Drain
	stop   context.CancelFunc
	done   bool
	stays  string // what keeps pods on the node
	since  time.Time
}

// refusedAgain is how soon the eviction of a pod is retried after its disruption budget refused it. No event says
// when a budget allows an eviction again.
const refusedAgain = 10 * time.Second

func newDrains(api kube.API, log *slog.Logger, poke func()) *drains {
	return &drains{api: client{api}, log: log, poke: poke, nodes: map[string]*draining{}}
}

// done reports whether all pods that must leave the node have left. It starts the drain if none is running, and starts
// it again if its policy has other rules now. If another policy drains the node, its rules hold.
func (d *drains) done(ctx context.Context, node, policy string, how accel.Drain) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since := time.Now()
	if x := d.nodes[node]; x != nil {
		if x.policy != policy || reflect.DeepEqual(x.how, how) {
			return x.done
		}
		x.stop()
		since = x.since
	}
	ctx, stop := context.WithCancel(ctx)
	x := &draining{policy: policy, how: how, stop: stop, since: since}
	d.nodes[node] = x
	d.group.Keep(ctx, "drain of node "+node, func(ctx context.Context) error {
		for done := false; ctx.Err() == nil && !done; {
			done = d.round(ctx, node, x)
		}
		return nil
	})
	return false
}

// drop ends the drain of a node if its policy asks for none any more.
func (d *drains) drop(node, policy string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.nodes[node]; x != nil && x.policy == policy {
		x.stop()
		delete(d.nodes, node)
	}
}

// keep ends the drains of nodes that no longer have a slot.
func (d *drains) keep(held map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.nodes, func(node string, x *draining) bool {
		if !held[node] {
			x.stop()
		}
		return !held[node]
	})
}

// hindered says what keeps pods on each node.
func (d *drains) hindered() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]string{}
	for node, x := range d.nodes {
		if !x.done && x.stays != "" {
			out[node] = x.stays
		}
	}
	return out
}

// end ends all drains.
func (d *drains) end() {
	d.keep(nil)
	d.group.Wait()
}

// note records what keeps pods on the node.
func (d *drains) note(x *draining, stays string, done bool) {
	d.mu.Lock()
	news := x.stays != stays || x.done != done
	x.stays, x.done = stays, done
	d.mu.Unlock()
	if news {
		d.poke()
	}
}

// stays reports whether a pod is left alone: it has ended, or its DaemonSet or the kubelet would create it again.
func (p *pod) stays() bool {
	return p.over() || p.Annotations["kubernetes.io/config.mirror"] != "" ||
		slices.ContainsFunc(p.OwnerReferences, func(o kube.Owner) bool {
			return o.Controller && o.Kind == "DaemonSet"
		})
}

// round evicts the pods and waits for the next event. It reports whether all have left.
func (d *drains) round(ctx context.Context, node string, x *draining) bool {
	on := url.Values{"fieldSelector": {"spec.nodeName=" + node}}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []pod `json:"items"`
	}
	if err := d.api.get(ctx, "/api/v1/pods", on, &list); err != nil {
		d.note(x, fmt.Sprintf("cannot list its pods: %v", err), false)
		_ = pace.Sleep(ctx, refusedAgain)
		return false
	}
	left, until := d.evict(ctx, list.Items, x)
	if len(left) == 0 {
		d.log.Info("node drained", "node", node)
		d.note(x, "", true)
		return true
	}
	slices.Sort(left)
	d.note(x, strings.Join(left, "; "), false)
	ctx, cancel := context.WithTimeout(ctx, until)
	defer cancel()
	on.Set("resourceVersion", list.Metadata.ResourceVersion)
	d.await(ctx, on)
	return false
}

// evict evicts every pod that must leave. It returns the pods that are still there, and when to try again.
func (d *drains) evict(ctx context.Context, pods []pod, x *draining) (left []string, again time.Duration) {
	again = time.Hour
	limit, _ := time.ParseDuration(x.how.WaitTimeout) // the policy was checked
	for _, p := range pods {
		labels, name := p.Labels, p.Key()
		if p.stays() || !accel.Has(labels, x.how.PodSelector) {
			continue
		}
		if p.DeletionTimestamp != nil {
			left = append(left, name+" ends")
			continue
		}
		if len(x.how.WaitFor) > 0 && accel.Has(labels, x.how.WaitFor) {
			over := limit - time.Since(x.since)
			if limit == 0 || over > 0 {
				left = append(left, name+" is waited for")
				if limit > 0 {
					again = min(again, over+time.Second)
				}
				continue
			}
		}
		if text := d.ask(ctx, p); text != "" {
			left, again = append(left, name+": "+text), min(again, refusedAgain)
			continue
		}
		left = append(left, name+" is evicted")
	}
	return left, again
}

// ask evicts one pod. The text says why the API server refused.
func (d *drains) ask(ctx context.Context, p pod) string {
	body := object{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata": object{"name": p.Name, "namespace": p.Namespace},
		// another pod may have this name by now
		"deleteOptions": object{"preconditions": object{"uid": p.UID}},
	}
	path := "/api/v1/namespaces/" + p.Namespace + "/pods/" + p.Name + "/eviction"
	err := d.api.Do(ctx, http.MethodPost, path, nil, body, nil)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return ""
	}
	return err.Error()
}

// await returns when a pod of the node has changed or ctx has ended.
func (d *drains) await(ctx context.Context, on url.Values) {
	stream, err := d.api.Watch(ctx, "/api/v1/pods", on)
	if err != nil {
		_ = pace.Sleep(ctx, refusedAgain)
		return
	}
	defer stream.Close()
	_ = json.NewDecoder(stream).Decode(new(json.RawMessage)) // an event, or the end of the watch
	_ = pace.Sleep(ctx, settle)                              // pods often end together
}
