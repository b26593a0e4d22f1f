package kube

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/pace"
)

// PolicyKind and PolicyVersion are the kind and the API version of policies.
const (
	PolicyKind    = "AcceleratorPolicy"
	PolicyVersion = "acceld.dev/v1alpha1"
)

// PoliciesPath is the path of policies in the API.
const PoliciesPath = "/apis/acceld.dev/v1alpha1/acceleratorpolicies"

// API accesses objects of the API server as JSON; [Documents] is one.
type API interface {
	Do(ctx context.Context, method, path string, query url.Values, body, into any) error
	Watch(ctx context.Context, path string, query url.Values) (io.ReadCloser, error)
}

// Policies is the task that follows the policies of the cluster for an agent. Changes of their status, which the
// controller writes, do not matter here. So thousands of agents watch only the metadata, and read the policies again
// when one of them requests something else.
type Policies struct {
	// API reads policies; Outlines watches their metadata.
	API, Outlines API
	Log           *slog.Logger
	// Tell is called with all policies, first after they are read and then when they have changed.
	Tell func([]accel.Policy)
	// Kept is true if there are policies from earlier, which apply until others are read: Last.
	Kept bool
	Last []accel.Policy

	ready    chan struct{}
	once     sync.Once
	reported bool // reported that the cluster has no policies; owned by Run
}

const (
	// seldom is how often a cluster without the policies' CRD is asked for policies if the CRD cannot be watched.
	seldom = 15 * time.Minute
	// policiesCRD and policiesCRDName locate the CRD that makes the API server serve policies.
	policiesCRD     = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	policiesCRDName = "acceleratorpolicies.acceld.dev"
)

// NewPolicies returns a task that has not contacted the API server yet. last are the policies from earlier, if kept.
func NewPolicies(d Documents, log *slog.Logger, last []accel.Policy, kept bool, tell func([]accel.Policy)) *Policies {
	return &Policies{
		API: d, Outlines: d.Outlines(), Log: log, Kept: kept, Last: last, Tell: tell, ready: make(chan struct{}),
	}
}

// String names the task.
func (p *Policies) String() string { return "policies of the cluster" }

// Ready is closed after the first read of the policies, even if that failed: the last policies then apply.
func (p *Policies) Ready() <-chan struct{} { return p.ready }

// Run follows the policies until ctx ends.
func (p *Policies) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		generations, version, err := p.read(ctx)
		p.once.Do(func() { close(p.ready) })
		wait := time.Duration(0)
		switch {
		case ctx.Err() != nil:
		case apierrors.IsNotFound(err):
			if !p.reported {
				p.Log.Debug("the cluster has no accelerator policies; their definition is awaited")
			}
			p.reported, p.Last = true, nil
			p.Tell(nil)
			began := time.Now()
			p.await(ctx)
			if failures++; time.Since(began) > backoffMax {
				failures = 1
			}
			wait = backoff(failures) + rand.N(spread)
		case err != nil:
			if failures++; failures == 1 {
				p.Log.Warn("cannot read the policies of the cluster; the last ones hold", "problem", err)
			}
			if wait = backoff(failures); apierrors.IsForbidden(err) && !p.Kept {
				p.Tell(nil) // an agent that never could read them must not wait for them
			}
		default:
			p.reported, p.Kept, failures = false, true, 0
			p.follow(ctx, generations, version)
			wait = rand.N(spread)
		}
		_ = pace.Sleep(ctx, wait)
	}
	return nil
}

// read passes all policies to Tell; one that cannot be read stays as it was. It returns their resource version and, by
// UID, a text that changes when what a policy requests changes.
func (p *Policies) read(ctx context.Context) (generations map[string]string, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := p.API.Do(ctx, http.MethodGet, PoliciesPath, nil, nil, &list); err != nil {
		return nil, "", err
	}
	all := []accel.Policy{}
	generations = map[string]string{}
	for _, raw := range list.Items {
		var x struct {
			Metadata Meta `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &x); err != nil { // the API server checks metadata, and not all of a policy
			return nil, "", err
		}
		var content struct {
			Spec   accel.PolicySpec `json:"spec"`
			Status struct {
				Definitions []accel.NamedDefinition `json:"definitions"`
			} `json:"status"`
		}
		problem := json.Unmarshal(raw, &content)
		generations[x.Metadata.UID] = x.Metadata.asked()
		asked := accel.Policy{
			Name: x.Metadata.Name, Created: x.Metadata.CreationTimestamp, Spec: content.Spec,
			Named: content.Status.Definitions,
		}
		switch {
		case x.Metadata.DeletionTimestamp != nil:
		case problem != nil:
			p.Log.Warn("cannot read a policy; the last version that could be read holds", "policy", x.Metadata.Name,
				"problem", problem)
			all = append(all, p.last(x.Metadata.Name)...)
		case !asked.Settled() && len(p.last(asked.Name)) > 0: // the controller has not copied what it names now
			all = append(all, p.last(asked.Name)...)
		default:
			all = append(all, asked)
		}
	}
	p.Last = all
	p.Tell(all)
	return generations, list.Metadata.ResourceVersion, nil
}

// last returns the last version of a policy; none if it is unknown.
func (p *Policies) last(name string) []accel.Policy {
	return slices.DeleteFunc(slices.Clone(p.Last), func(x accel.Policy) bool { return x.Name != name })
}

// await returns when the policies' CRD is created or changed, or exists but is not served yet. If watching it is
// refused, it returns after about [seldom].
func (p *Policies) await(ctx context.Context) {
	query := url.Values{"fieldSelector": {"metadata.name=" + policiesCRDName}}
	persist(ctx, func() (over bool) {
		err := events(ctx, p.Outlines, policiesCRD, query, func(kind string, _ *struct{}) (more bool) {
			over = kind != "DELETED"
			return false
		})
		if apierrors.IsForbidden(err) {
			_ = pace.Sleep(ctx, seldom+rand.N(seldom/10))
			return true
		}
		return over
	})
}

// follow returns when a policy is created, deleted or requests something else, or when the watch cannot be resumed.
func (p *Policies) follow(ctx context.Context, generations map[string]string, version string) {
	type outline struct {
		Metadata Meta `json:"metadata"`
	}
	persist(ctx, func() (over bool) {
		query := url.Values{"resourceVersion": {version}, "allowWatchBookmarks": {"true"}}
		err := events(ctx, p.Outlines, PoliciesPath, query, func(kind string, x *outline) (more bool) {
			m := x.Metadata
			version = m.ResourceVersion
			known, there := generations[m.UID]
			over = kind != "BOOKMARK" && (kind == "DELETED" || !there || known != m.asked())
			return !over
		})
		return over || apierrors.IsNotFound(err) || tooOld(err)
	})
}
