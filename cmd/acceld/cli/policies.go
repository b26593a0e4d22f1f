package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/vendors"
)

// followed are the policies of the cluster while the agent runs: what it was told, also where that cannot be kept.
type followed struct {
	mu    sync.Mutex
	now   agent.Policies
	known bool
	// listed and seen are whether the API server has told the policies, and the labels of the node, which select among them.
	listed, seen bool
	// news has room for one: the configuration is to be read again.
	news chan struct{}
}

// credentials reports whether there is a way to the API server.
func credentials(config agent.Config) bool {
	return config.Kubernetes != "off" && (config.Kubeconfig != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "")
}

// follow begins with the policies that were kept.
func (c *common) follow(h *host.Host, config agent.Config) *accel.Problem {
	f := &followed{news: make(chan struct{}, 1)}
	var problem *accel.Problem
	if credentials(config) && config.Policies {
		f.now, f.known, problem = agent.ReadPolicies(h, config.StateDir)
	} else {
		f.known = true // that there are none
	}
	c.followed = f
	return problem
}

// policies returns the policies in force, and whether anybody knows them.
func (c *common) policies(h *host.Host, config agent.Config) (p agent.Policies, known bool, problem *accel.Problem) {
	if f := c.followed; f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.now, f.known, nil
	}
	if !config.Policies || config.Kubernetes == "off" {
		return agent.Policies{}, true, nil
	}
	p, _, problem = agent.ReadPolicies(h, config.StateDir) // a command changes no driver because of what nobody knows
	return p, true, problem
}

// hear takes over what change makes of the policies.
func (a *running) hear(f *followed, change func()) {
	f.mu.Lock()
	before, knew := f.now, f.known
	change()
	f.known = f.known || f.listed && f.seen
	now, known := f.now, f.known
	f.mu.Unlock()
	if !known || knew && now.Equal(before) {
		return
	}
	if problem := now.Keep(a.host, a.config.StateDir); problem != nil {
		a.log.Warn("policies of the cluster not kept", "reason", problem.Reason, "message", problem.Message)
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// followPolicies is the task that follows the policies of the cluster; nil where they are not asked for.
func (a *running) followPolicies(f *followed) agent.Task {
	if a.documents == nil || !a.config.Policies {
		return nil
	}
	return kube.NewPolicies(*a.documents, a.log, f.known, func(all []accel.Policy) {
		a.hear(f, func() { f.now.All, f.listed = all, true })
	})
}

// labelled tells the policies which labels the node has.
func (a *running) labelled(f *followed) {
	s := a.kube.State()
	if !s.NodeFound {
		return
	}
	a.hear(f, func() { f.now.Labels, f.seen = s.NodeLabels, true })
}

// addDefinitions adds the definitions that policies bring, which replace built-in ones.
func addDefinitions(defs map[string]*accel.Definition, p agent.Policies) []*accel.Problem {
	var problems []*accel.Problem
	for i, data := range p.Definitions() {
		def, problem := vendors.Parse(fmt.Sprintf("a policy's definition %d", i+1), data)
		if problem != nil {
			problem.Reason = accel.PolicyInvalid
			problems = append(problems, problem)
			continue
		}
		defs[def.Kind] = def
	}
	return problems
}

// ordered are the definitions in force with the policies of the cluster between definition and configuration file.
func ordered(config agent.Config, defs map[string]*accel.Definition, p agent.Policies) (map[string]*accel.Definition, []*accel.Problem, *accel.Problem) {
	applied, problems := p.Apply(defs)
	out, problem := config.Override(applied)
	if problem != nil {
		// It may be the policies that do not fit the file, such as by two kinds of one name: the file alone decides then.
		if alone, mistake := config.Override(defs); mistake == nil {
			problem.Reason = accel.PolicyInvalid
			return p.Order(alone), append(problems, problem), nil
		}
		return nil, nil, problem
	}
	return p.Order(out), problems, nil
}

// firstProblem is the one that is shown.
func firstProblem(all ...[]*accel.Problem) *accel.Problem {
	if joined := slices.Concat(all...); len(joined) > 0 {
		return joined[0]
	}
	return nil
}

// governed are the names of the policies that hold on this node, by kind; for the log.
func governed(p agent.Policies) map[string]string {
	by, _ := accel.Governing(p.All, p.Labels)
	out := map[string]string{}
	for kind := range maps.Keys(by) {
		out[kind] = by[kind].Name
	}
	return out
}
