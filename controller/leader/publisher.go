package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

const (
	// again is how soon a refused write is retried.
	again = 10 * time.Second
	// calm is the minimum time between two writes, in case something else keeps writing the slice too.
	calm = time.Second
	// deadline limits one request. farewell limits the one that removes the address at the end of a term, while the
	// lease is still held.
	deadline = 15 * time.Second
	farewell = 2 * time.Second
)

// Publisher points a Service without a selector to this replica while it is the leader.
type Publisher struct {
	API kube.API
	// Namespace and Name are those of the Service and of its EndpointSlice.
	Namespace, Name string
	// Address is this replica's address. Pod and Node are its names, for people.
	Address   netip.Addr
	Pod, Node string
	Ports     []Port
	// Writer is the field manager.
	Writer string
	Log    *slog.Logger

	reported kube.Reported
}

// Run points the Service to this replica until ctx ends with the term. It then removes the address, unless another
// replica has already written the slice.
func (k *Publisher) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	changed := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	named := url.Values{"fieldSelector": {"metadata.name=" + k.Name}}
	services := &kube.Reflector[service, *service]{
		API: k.API, Path: "/api/v1/namespaces/" + k.Namespace + "/services",
		Query: named, Changed: changed,
	}
	slices := &kube.Reflector[slice, *slice]{API: k.API, Path: k.collection(), Query: named, Changed: changed}
	return guard.Together(ctx, services.Run, slices.Run, func(ctx context.Context) error {
		k.follow(ctx, services, slices, wake)
		return nil
	})
}

// follow writes the slice whenever it is wrong, until ctx ends.
func (k *Publisher) follow(ctx context.Context, services *kube.Reflector[service, *service],
	slices *kube.Reflector[slice, *slice], wake <-chan struct{},
) {
	timer := time.NewTimer(again)
	defer timer.Stop()
	var ours *slice // the slice as last seen with this replica's address
	for {
		select {
		case <-ctx.Done():
			k.leave(ctx, ours)
			return
		case <-wake:
		case <-timer.C:
		}
		timer.Reset(again)
		s, ready := services.All()
		all, synced := slices.All()
		if !ready || !synced {
			k.report(errors.Join(services.Err(), slices.Err()))
			continue
		}
		have := all[k.Namespace+"/"+k.Name]
		now, err := k.pass(ctx, s[k.Namespace+"/"+k.Name], have)
		if k.report(err); err != nil {
			continue
		}
		if ours = now; now != have {
			slices.Put(now)
			_ = pace.Sleep(ctx, calm)
		}
	}
}

func (k *Publisher) collection() string {
	return "/apis/discovery.k8s.io/v1/namespaces/" + k.Namespace + "/endpointslices"
}

// report logs an error once.
func (k *Publisher) report(err error) {
	if k.reported.New(err) {
		k.Log.Error("the Service does not point to this replica", "service", k.Namespace+"/"+k.Name, "error", err)
	}
}

// pass writes the slice if its content is wrong, and returns what the API server has then.
func (k *Publisher) pass(ctx context.Context, s *service, have *slice) (*slice, error) {
	if s == nil {
		return nil, errors.New("it does not exist, and the controller may not create it: apply the manifests of acceld")
	}
	want := k.slice(s.UID)
	if have != nil && have.says(want) {
		return have, nil
	}
	limited, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	written := &slice{}
	err := k.API.Do(limited, http.MethodPatch, k.collection()+"/"+k.Name, url.Values{
		"fieldManager": {k.Writer},
		"force":        {"true"},
	}, applied{want}, written)
	if err != nil {
		return nil, fmt.Errorf("cannot write its EndpointSlice: %w", err)
	}
	k.Log.Info("the Service leads here", "service", k.Namespace+"/"+k.Name, "address", k.Address)
	return written, nil
}

// slice returns the desired EndpointSlice.
func (k *Publisher) slice(uid string) *slice {
	s := &slice{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice", AddressType: "IPv4", Ports: k.Ports}
	if k.Address.Is6() {
		s.AddressType = "IPv6"
	}
	s.Name, s.Namespace = k.Name, k.Namespace
	s.Labels = map[string]string{serviceLabel: k.Name, managerLabel: k.Writer + ".acceld.dev"}
	s.OwnerReferences = []kube.Owner{{APIVersion: "v1", Kind: "Service", Name: k.Name, UID: uid}}
	e := endpoint{Addresses: []string{k.Address.String()}, Conditions: conditions{Ready: true}, NodeName: k.Node}
	if k.Pod != "" {
		e.TargetRef = &target{Kind: "Pod", Namespace: k.Namespace, Name: k.Pod}
	}
	s.Endpoints = []endpoint{e}
	return s
}

// leave removes the address, because another pod may get it later. The write is conditional: it does nothing if
// somebody has written the slice since.
func (k *Publisher) leave(ctx context.Context, ours *slice) {
	if ours == nil {
		return
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	patch := map[string]any{
		"endpoints": []endpoint{},
		"metadata":  map[string]any{"resourceVersion": ours.ResourceVersion},
	}
	err := k.API.Do(limited, http.MethodPatch, k.collection()+"/"+k.Name, url.Values{"fieldManager": {k.Writer}}, patch,
		nil)
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		k.Log.Warn("the Service leads here until another replica is the leader", "service", k.Namespace+"/"+k.Name,
			"error", err)
	}
}
