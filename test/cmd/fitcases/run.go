package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/fit"
)

// cluster is the API server of one case, and the extender that watches it.
type cluster struct {
	rules fit.Rules
	nodes map[string]*corev1.Node
	pods  map[string]*corev1.Pod

	extender *extender.Extender
	cache    *extender.Cache
	stop     func()
}

// run runs the steps of a case, up to the first that is not as it should be.
func (c *testCase) run() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	rules, err := c.rules()
	if err != nil {
		return err
	}
	cl := &cluster{rules: rules, nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}}
	for _, n := range c.Nodes {
		if cl.nodes[n.Name], err = n.object(); err != nil {
			return err
		}
	}
	for _, p := range c.Pods {
		if cl.pods[p.Name], err = p.object(); err != nil {
			return err
		}
	}
	cl.start()
	defer func() { cl.stop() }()
	for i, s := range c.Steps {
		if err := cl.step(s, c.TilesAny); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// start is a new process: nothing is known but what the API has.
func (c *cluster) start() {
	c.extender = extender.New(&c.rules, extender.API{Pod: c.getPod, Bind: c.bindPod}, extender.Pack,
		slog.New(slog.DiscardHandler))
	c.cache = extender.NewCache(&c.rules)
	ctx, cancel := context.WithCancel(context.Background())
	listed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		c.extender.During(ctx, c.cache, func(ctx context.Context) {
			var nodes []*extender.Facts
			for _, n := range c.nodes {
				nodes = append(nodes, extender.TrimNode(&c.rules, n))
			}
			var pods []*extender.Pod
			for _, p := range c.pods {
				if t := c.cache.Trim(p); t != nil {
					pods = append(pods, t)
				}
			}
			c.cache.ListNodes(nodes)
			c.cache.ListPods(pods)
			close(listed)
			<-ctx.Done()
		})
	}()
	<-listed
	c.stop = func() {
		cancel()
		<-ended
	}
}

func (c *cluster) getPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	if p := c.pods[name]; p != nil {
		return p.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

// bindPod does what the API server does with a Binding.
func (c *cluster) bindPod(_ context.Context, b *corev1.Binding) error {
	p := c.pods[b.Name]
	resource := schema.GroupResource{Resource: "pods/binding"}
	switch {
	case p == nil:
		return apierrors.NewNotFound(resource, b.Name)
	case p.UID != b.UID, p.Spec.NodeName != "":
		return apierrors.NewConflict(resource, b.Name, errors.New("it is another pod, or bound already"))
	}
	p.Spec.NodeName, p.Status.Phase = b.Target.Name, corev1.PodRunning
	maps.Copy(p.Annotations, b.Annotations)
	return nil
}

// show tells the cache about a pod, as a watch does.
func (c *cluster) show(p *corev1.Pod) {
	if t := c.cache.Trim(p); t != nil {
		c.cache.SetPod(t)
	}
}

func (c *cluster) step(s step, tilesAny bool) error {
	switch {
	case s.Filter != "":
		return c.filter(s)
	case s.Bind != "":
		return c.bind(s, tilesAny)
	case s.Event != "":
		return c.event(s)
	case s.PodLabel != "":
		p := c.pods[s.PodLabel]
		if p == nil {
			return fmt.Errorf("there is no pod %q", s.PodLabel)
		}
		if _, has := p.Labels[s.Has]; s.Has != "" && !has {
			return fmt.Errorf("pod %s has no label %s", p.Name, s.Has)
		}
		if _, has := p.Labels[s.HasNot]; s.HasNot != "" && has {
			return fmt.Errorf("pod %s has label %s", p.Name, s.HasNot)
		}
		return nil
	case s.HTTP != "":
		return c.http(s)
	}
	return errors.New("nobody knows such a step")
}

// post sends a request to the extender.
func (c *cluster) post(verb string, body any) (*httptest.ResponseRecorder, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/scheduler/"+verb,
		strings.NewReader(string(data)))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	c.extender.Handler().ServeHTTP(w, r)
	return w, nil
}

func (c *cluster) filter(s step) error {
	p := c.pods[s.Filter]
	if p == nil {
		return fmt.Errorf("there is no pod %q", s.Filter)
	}
	w, err := c.post("filter", map[string]any{"Pod": p, "NodeNames": s.On})
	if err != nil {
		return err
	}
	var got struct {
		NodeNames   []string
		FailedNodes map[string]string
		Error       string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || got.Error != "" {
		return fmt.Errorf("filter %s: status %d, %s", s.Filter, w.Code, w.Body)
	}
	pass := slices.Sorted(slices.Values(got.NodeNames))
	if !slices.Equal(pass, slices.Sorted(slices.Values(s.Pass))) {
		return fmt.Errorf("filter %s passes %v, want %v (%v)", s.Filter, pass, s.Pass, got.FailedNodes)
	}
	for _, n := range s.On {
		if _, failed := got.FailedNodes[n]; failed == slices.Contains(pass, n) {
			return fmt.Errorf("filter %s: node %s is in both lists or none", s.Filter, n)
		}
	}
	return nil
}

func (c *cluster) bind(s step, tilesAny bool) error {
	p := c.pods[s.Bind]
	if p == nil {
		return fmt.Errorf("there is no pod %q", s.Bind)
	}
	before := p.Spec.NodeName
	w, err := c.post("bind", map[string]any{
		"PodName": p.Name, "PodNamespace": p.Namespace, "PodUID": p.UID,
		"Node": s.To,
	})
	if err != nil {
		return err
	}
	var got struct{ Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		return fmt.Errorf("bind %s: status %d, %s", s.Bind, w.Code, w.Body)
	}
	if s.Error {
		if got.Error == "" && w.Code == http.StatusOK || p.Spec.NodeName != before {
			return fmt.Errorf("bind %s to %s went well, and must not", s.Bind, s.To)
		}
		return nil
	}
	if got.Error != "" || w.Code != http.StatusOK || p.Spec.NodeName != s.To {
		return fmt.Errorf("bind %s: status %d, %s", s.Bind, w.Code, w.Body)
	}
	c.show(p)
	if cards := p.Annotations["gas-container-cards"]; s.Cards != nil && cards != *s.Cards {
		return fmt.Errorf("bind %s: cards %q, want %q", s.Bind, cards, *s.Cards)
	}
	if tiles := p.Annotations["gas-container-tiles"]; s.Tiles != nil && tiles != *s.Tiles &&
		!(tilesAny && counts(tiles) == counts(*s.Tiles)) {
		return fmt.Errorf("bind %s: tiles %q, want %q", s.Bind, tiles, *s.Tiles)
	}
	return nil
}

// counts replaces each list of tiles by its length.
func counts(tiles string) string {
	out := strings.FieldsFunc(tiles, func(r rune) bool { return r >= '0' && r <= '9' })
	return strings.Join(out, "") + cardsOf(tiles)
}

// cardsOf keeps the names of the cards, which have digits too.
func cardsOf(tiles string) string {
	var out []string
	for _, part := range strings.FieldsFunc(tiles, func(r rune) bool { return r == ',' || r == '|' }) {
		card, _, _ := strings.Cut(part, ":")
		out = append(out, card)
	}
	return " " + strings.Join(out, " ")
}

func (c *cluster) event(s step) error {
	p := c.pods[s.Pod]
	if p == nil && s.Pod != "" {
		return fmt.Errorf("there is no pod %q", s.Pod)
	}
	switch s.Event {
	case "restart":
		c.stop()
		c.start()
	case "deleted":
		delete(c.pods, s.Pod)
		c.cache.DropPod(fit.NewUID(string(p.UID)))
	case "deleting":
		now := metav1.Now()
		p.DeletionTimestamp = &now
		c.show(p)
	case "succeeded":
		p.Status.Phase = corev1.PodSucceeded
		c.show(p)
	case "failed":
		p.Status.Phase = corev1.PodFailed
		c.show(p)
	case "label":
		n := c.nodes[s.Node]
		if n == nil {
			return fmt.Errorf("there is no node %q", s.Node)
		}
		for key, value := range s.Set {
			n.Labels[label(key)] = value
		}
		for _, key := range s.Unset {
			delete(n.Labels, label(key))
		}
		c.cache.SetNode(extender.TrimNode(&c.rules, n))
	default:
		return fmt.Errorf("nobody knows event %q", s.Event)
	}
	return nil
}

// http sends a request as the step has it, and compares status and answer.
func (c *cluster) http(s step) error {
	var body string
	if s.Raw != nil {
		body = *s.Raw
	} else {
		sent := maps.Clone(s.Body)
		for _, key := range []string{"Pod"} {
			if name, ok := sent[key].(string); ok && c.pods[name] != nil {
				sent[key] = c.pods[name]
			}
		}
		data, err := json.Marshal(sent)
		if err != nil {
			return err
		}
		body = string(data)
	}
	method, kind := s.Method, s.ContentType
	if method == "" {
		method = http.MethodPost
	}
	if kind == "" {
		kind = "application/json"
	}
	r := httptest.NewRequestWithContext(context.Background(), method, "/scheduler/"+s.HTTP, strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	c.extender.Handler().ServeHTTP(w, r)
	if s.Status != 0 && w.Code != s.Status {
		return fmt.Errorf("http %s: status %d, want %d: %s", s.HTTP, w.Code, s.Status, w.Body)
	}
	if s.Answer == nil {
		return nil
	}
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		return fmt.Errorf("http %s: %w: %s", s.HTTP, err, w.Body)
	}
	var answer map[string]any // numbers as JSON has them
	if data, err := json.Marshal(s.Answer); err != nil || json.Unmarshal(data, &answer) != nil {
		return fmt.Errorf("http %s: cannot use the answer: %w", s.HTTP, err)
	}
	for key, want := range answer {
		if err := compare(at(got, key), want); err != nil {
			return fmt.Errorf("http %s: %s %w", s.HTTP, key, err)
		}
	}
	return nil
}

// at follows a path with dots.
func at(v any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// compare holds a part of an answer to what is wanted of it. A list is wanted of a map's keys too.
func compare(got, want any) error {
	size := 0
	if v := reflect.ValueOf(got); got != nil && (v.Kind() == reflect.Slice || v.Kind() == reflect.Map ||
		v.Kind() == reflect.String) {
		size = v.Len()
	}
	if m, ok := got.(map[string]any); ok {
		if _, list := want.([]any); list {
			var keys []any
			for _, key := range slices.Sorted(maps.Keys(m)) {
				keys = append(keys, key)
			}
			got = keys
		}
	}
	switch {
	case want == "empty" || want == "empty-or-null" || want == "":
		if size != 0 {
			return fmt.Errorf("is %v, want nothing", got)
		}
	case want == "null":
		if got != nil {
			return fmt.Errorf("is %v, want null", got)
		}
	case !reflect.DeepEqual(got, want):
		return fmt.Errorf("is %v, want %v", got, want)
	}
	return nil
}
