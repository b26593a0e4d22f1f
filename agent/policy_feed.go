package agent

import (
	"os"
	"sync"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/kube"
)

// PolicyFeed has the policies of the cluster while the agent runs. It has what the API server last reported, even if
// that could not be kept on disk. It is safe for concurrent use.
type PolicyFeed struct {
	host     *host.Host
	stateDir string

	mu    sync.Mutex
	now   Policies
	known bool
	// next is what the API server has reported. It takes the place of now when it is complete: policies and labels that
	// do not belong together would select others.
	next Policies
	// listed is true once the API server has reported the policies; seen, once it has reported the node's labels,
	// which select among them.
	listed, seen bool
	// news has room for one value, which means: read the configuration again.
	news chan struct{}
}

// NewPolicyFeed returns a feed that starts with the kept policies. It returns a problem if they cannot be read.
func NewPolicyFeed(h *host.Host, config Config) (*PolicyFeed, *accel.Problem) {
	f := &PolicyFeed{host: h, stateDir: config.StateDir, news: make(chan struct{}, 1)}
	if !credentials(config) || !config.Policies {
		f.known = true // known to be none
		return f, nil
	}
	var problem *accel.Problem
	f.now, f.known, problem = ReadPolicies(h, config.StateDir)
	return f, problem
}

// Now returns the policies in force, and whether they are known.
func (f *PolicyFeed) Now() (p Policies, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.known
}

// setPolicies takes over the policies from the API server.
func (f *PolicyFeed) setPolicies(all []accel.Policy) *accel.Problem {
	return f.change(func() { f.next.All, f.listed = all, true })
}

// setLabels takes over the labels of the node.
func (f *PolicyFeed) setLabels(labels map[string]string) *accel.Problem {
	return f.change(func() { f.next.Labels, f.seen = labels, true })
}

// change applies a change. If the policies in force differ after it, change keeps them on disk and sends news. It
// returns a problem if they could not be kept.
func (f *PolicyFeed) change(change func()) *accel.Problem {
	f.mu.Lock()
	before, knew := f.now, f.known
	change()
	if f.listed && f.seen {
		f.now, f.known = f.next, true
	}
	now, known := f.now, f.known
	f.mu.Unlock()
	if !known || knew && now.Equal(before) {
		return nil
	}
	problem := now.Keep(f.host, f.stateDir)
	select {
	case f.news <- struct{}{}:
	default:
	}
	return problem
}

// policiesNow returns the policies in force, and whether they are known. A command has no feed and reads what the
// agent kept. If nothing was kept, that counts as no policies: a command changes no driver because of unknown
// policies.
func policiesNow(f *PolicyFeed, h *host.Host, config Config) (p Policies, known bool, problem *accel.Problem) {
	if f != nil {
		p, known = f.Now()
		return p, known, nil
	}
	if !config.Policies || config.Kubernetes == "off" {
		return Policies{}, true, nil
	}
	p, _, problem = ReadPolicies(h, config.StateDir)
	return p, true, problem
}

// credentials reports whether the agent can reach the API server.
func credentials(config Config) bool {
	return config.Kubernetes != "off" && (config.Kubeconfig != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "")
}

// governing returns the names of the policies that apply to this node, by kind; for the log.
func governing(p Policies) map[string]string {
	by, _ := accel.Governing(p.All, p.Labels)
	out := map[string]string{}
	for kind, policy := range by {
		out[kind] = policy.Name
	}
	return out
}

// followPolicies returns the task that follows the policies of the cluster; nil if they are switched off.
func (a *Agent) followPolicies() Task {
	if a.documents == nil || !a.Config.Policies {
		return nil
	}
	now, known := a.o.Policies.Now()
	return kube.NewPolicies(*a.documents, a.Log, now.All, known, func(all []accel.Policy) {
		a.policiesKept(a.o.Policies.setPolicies(all))
	})
}

// followLabels passes the node's labels to the policy feed.
func (a *Agent) followLabels() {
	if s := a.kube.State(); s.NodeFound {
		a.policiesKept(a.o.Policies.setLabels(s.NodeLabels))
	}
}

func (a *Agent) policiesKept(problem *accel.Problem) {
	if problem != nil {
		a.Log.Warn("policies of the cluster not kept", "reason", problem.Reason, "message", problem.Message)
	}
}
