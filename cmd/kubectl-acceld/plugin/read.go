package plugin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/kube"
)

// reader reads from the API server.
type reader struct{ api kube.API }

// page is how many objects are read at a time, and most how many in all.
const (
	page = "500"
	most = 100_000
)

// list reads all objects at a path.
func list[T any](ctx context.Context, r reader, path string, query url.Values) (all []T, err error) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", page)
	for {
		var answer struct {
			Meta struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		if err := r.api.Do(ctx, http.MethodGet, path, query, nil, &answer); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		all = append(all, answer.Items...)
		if answer.Meta.Continue == "" {
			return all, nil
		}
		if len(all) > most {
			return nil, fmt.Errorf("cannot read %s: there are more than %d", path, most)
		}
		query.Set("continue", answer.Meta.Continue)
	}
}

func (r reader) nodes(ctx context.Context) ([]corev1.Node, error) {
	return list[corev1.Node](ctx, r, "/api/v1/nodes", nil)
}

// pods returns the pods that have not ended.
func (r reader) pods(ctx context.Context) ([]corev1.Pod, error) {
	return list[corev1.Pod](ctx, r, "/api/v1/pods", url.Values{
		"fieldSelector": {"status.phase!=Succeeded,status.phase!=Failed"},
	})
}

func (r reader) pod(ctx context.Context, namespace, name string) (p corev1.Pod, err error) {
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name)
	if err := r.api.Do(ctx, http.MethodGet, path, nil, nil, &p); err != nil {
		return p, fmt.Errorf("cannot read pod %s/%s: %w", namespace, name, err)
	}
	return p, nil
}

// events returns the events of a pod.
func (r reader) events(ctx context.Context, p corev1.Pod) ([]corev1.Event, error) {
	return list[corev1.Event](ctx, r, "/api/v1/namespaces/"+p.Namespace+"/events", url.Values{
		"fieldSelector": {"involvedObject.uid=" + string(p.UID)},
	})
}

// rollout is the part of a policy that is shown.
type rollout struct {
	kube.Meta `json:"metadata"`
	Status    struct {
		Nodes      struct{ Matched, Ready, Upgrading, Waiting, Failed int } `json:"nodes"`
		Conditions []struct{ Type, Status, Reason, Message string }         `json:"conditions"`
		Blocked    []struct {
			Reason, Example string
			Count           int
		} `json:"blocked"`
	} `json:"status"`
}

func (r reader) policies(ctx context.Context) ([]rollout, error) {
	return list[rollout](ctx, r, kube.PoliciesPath, nil)
}
