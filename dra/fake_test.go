package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/test/watched"
)

const node = "node-a"

// server is a minimal API server: slices with versions and a watch, and claims to read.
type server struct {
	mu      sync.Mutex
	version int
	slices  map[string]Slice
	claims  map[string]claim
	classes map[string]class
	unread  bool   // classes may be created but not read
	owner   string // of the classes' fields
	nodeUID string
	watched.History
	// refuse is asked first; if it returns an error, the server answers with that.
	refuse   func(method, path string) error
	forgets  func(*Slice)      // drops fields as an older server does
	takes    func(Slice) error // refuses the content of a slice
	requests []string
}

func newServer() *server {
	return &server{
		slices: map[string]Slice{}, claims: map[string]claim{}, classes: map[string]class{}, owner: manager,
		version: 10, nodeUID: "node-uid",
	}
}

func (s *server) Do(_ context.Context, method, path string, _ url.Values, body, into any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, method+" "+path)
	if s.refuse != nil {
		if err := s.refuse(method, path); err != nil {
			return err
		}
	}
	answer, err := s.answer(method, strings.TrimPrefix(path, apiRoot), body)
	if err != nil || into == nil {
		return err
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (s *server) answer(method, path string, body any) (any, error) {
	resource, name, _ := strings.Cut(path, "/")
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	switch {
	case path == "/api/v1/nodes/"+node:
		return map[string]any{"metadata": kube.Identity{Name: node, UID: s.nodeUID}}, nil
	case resource == "resourceclaims":
		var list []claim
		for _, x := range s.claims {
			list = append(list, x)
		}
		return map[string]any{"metadata": kube.Identity{ResourceVersion: strconv.Itoa(s.version)}, "items": list}, nil
	case resource == "namespaces" && filepath.Base(path) == "status":
		patch := body.(statusPatch)
		c, ok := s.claims[patch.Metadata.Name]
		if !ok || c.Metadata.UID != patch.Metadata.UID || c.Metadata.Namespace != patch.Metadata.Namespace {
			return nil, missing
		}
		c.Status.Devices = patch.Status.Devices
		s.keep("MODIFIED", c)
		return c, nil
	case resource == "namespaces": // <namespace>/resourceclaims/<name>
		c, ok := s.claims[filepath.Base(path)]
		if !ok {
			return nil, missing
		}
		return c, nil
	case resource == "deviceclasses":
		return s.class(method, name, body)
	case resource != "resourceslices":
		return nil, missing
	case method == http.MethodGet:
		var list []Slice
		for _, x := range s.slices {
			list = append(list, x)
		}
		return map[string]any{"metadata": kube.Identity{ResourceVersion: strconv.Itoa(s.version)}, "items": list}, nil
	case method == http.MethodDelete:
		if _, ok := s.slices[name]; !ok {
			return nil, missing
		}
		s.drop(name)
		return nil, nil
	}
	data, _ := json.Marshal(body)
	var x Slice
	if err := json.Unmarshal(data, &x); err != nil {
		return nil, err
	}
	old, exists := s.slices[x.Metadata.Name]
	switch {
	case method == http.MethodPost && exists:
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: resource}, name)
	case method == http.MethodPut && !exists:
		return nil, missing
	case method == http.MethodPut && old.Metadata.ResourceVersion != x.Metadata.ResourceVersion:
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: resource}, name,
			fmt.Errorf("version %s", x.Metadata.ResourceVersion))
	}
	if s.takes != nil {
		if err := s.takes(x); err != nil {
			return nil, err
		}
	}
	if s.forgets != nil {
		s.forgets(&x)
	}
	s.version++
	x.Metadata.ResourceVersion, x.Metadata.UID = strconv.Itoa(s.version), old.Metadata.UID
	kind := "MODIFIED"
	if !exists {
		x.Metadata.UID, kind = "slice-"+strconv.Itoa(s.version), "ADDED"
	}
	s.slices[x.Metadata.Name] = x
	s.tell(kind, x)
	return x, nil
}

// class serves DeviceClasses; whoever applies a class owns the fields that it sends. The caller holds the lock.
func (s *server) class(method, name string, body any) (any, error) {
	resource := schema.GroupResource{Resource: "deviceclasses"}
	have, there := s.classes[name]
	switch {
	case method == http.MethodGet && s.unread:
		return nil, apierrors.NewForbidden(resource, name, errors.New("no"))
	case method == http.MethodGet && there:
		var x existing
		x.Metadata.ResourceVersion, x.Spec = have.Metadata.ResourceVersion, have.Spec
		x.Metadata.ManagedFields = []managed{{
			Manager: s.owner,
			Fields:  []byte(`{"f:spec":{"f:selectors":{},"f:extendedResourceName":{}}}`),
		}}
		return x, nil
	case method == http.MethodPatch && there:
		c := body.(applied).class
		if c.Metadata.ResourceVersion != have.Metadata.ResourceVersion {
			return nil, apierrors.NewConflict(resource, name, errors.New("version"))
		}
		s.classes[name] = c
		return c, nil
	case method == http.MethodPost:
		c := body.(class)
		if _, ok := s.classes[c.Metadata.Name]; ok {
			return nil, apierrors.NewAlreadyExists(resource, c.Metadata.Name)
		}
		s.classes[c.Metadata.Name] = c
		return c, nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

// drop deletes a slice; the caller holds the lock.
func (s *server) drop(name string) {
	s.version++
	x := s.slices[name]
	x.Metadata.ResourceVersion = strconv.Itoa(s.version)
	delete(s.slices, name)
	s.tell("DELETED", x)
}

func (s *server) tell(kind string, x Slice) {
	s.Add(apiRoot+"resourceslices", kind, s.version, x)
}

// wipe deletes every slice of the node, as a kubelet does when it starts.
func (s *server) wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.slices {
		s.drop(name)
	}
}

// allocate creates a claim with devices "request=device", "request=device/share", or "request=device!" for admin
// access.
func (s *server) allocate(name, uid string, devices ...string) {
	c := claim{Metadata: kube.Meta{Identity: kube.Identity{Namespace: "team", Name: name, UID: uid}}}
	data := `{"devices":{"results":[`
	for i, d := range devices {
		request, device, _ := strings.Cut(d, "=")
		device, admin := strings.CutSuffix(device, "!")
		device, share, _ := strings.Cut(device, "/")
		if i > 0 {
			data += ","
		}
		data += fmt.Sprintf(
			`{"request":%q,"driver":"qemu-edu.acceld.dev","pool":%q,"device":%q,"adminAccess":%v,"shareID":%q,"consumedCapacity":{"memory":"5Gi"}}`,
			request, node, device, admin, share)
	}
	if err := json.Unmarshal([]byte(data+`]}}`), &c.Status.Allocation); err != nil {
		panic(err)
	}
	c.Status.ReservedFor = []consumer{{Resource: "pods", Name: "pod-of-" + name, UID: "pod-uid"}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep("ADDED", c)
}

// keep stores a claim and tells the watches; the caller holds the lock.
func (s *server) keep(kind string, c claim) {
	s.version++
	c.Metadata.ResourceVersion = strconv.Itoa(s.version)
	s.claims[c.Metadata.Name] = c
	s.Add(apiRoot+"resourceclaims", kind, s.version, c)
}

// awaiting lets the pods of a claim wait until its devices are there.
func (s *server) awaiting(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[name]
	for i := range c.Status.Allocation.Devices.Results {
		c.Status.Allocation.Devices.Results[i].BindingConditions = []string{ConditionMade}
	}
	s.keep("MODIFIED", c)
}

// said returns the condition of the first device in a claim's status, and its reason.
func (s *server) said(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.claims[name].Status.Devices {
		return d.Device + " " + d.Conditions[0].Type + " " + d.Conditions[0].Reason
	}
	return ""
}

// configure adds parameters to a claim.
func (s *server) configure(name string, requests []string, parameters string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[name]
	c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, configuration{
		Source: "FromClaim", Requests: requests, Opaque: &opaque{
			Driver:     "qemu-edu.acceld.dev",
			Parameters: json.RawMessage(parameters),
		},
	})
	s.claims[name] = c
}

func (s *server) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[name]
	delete(s.claims, name)
	s.version++
	c.Metadata.ResourceVersion = strconv.Itoa(s.version)
	s.Add(apiRoot+"resourceclaims", "DELETED", s.version, c)
}

func (s *server) refusing(f func(method, path string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

func (s *server) published() []Slice {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Slice
	for _, x := range s.slices {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b Slice) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return all
}

// writes returns how many requests changed slices.
func (s *server) writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if !strings.HasPrefix(r, "GET") && strings.Contains(r, "resourceslices") {
			n++
		}
	}
	return n
}

// bed is a node with an API server, on which plugins and kubelets come and go.
type bed struct {
	testing.TB
	root   string
	host   *host.Host
	server *server
	def    *accel.Definition
	pci    []accel.PCIDevice
}

func newBed(t testing.TB) *bed {
	t.Helper()
	root, err := os.MkdirTemp("", "dra") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{TB: t, root: root, host: h, server: newServer(), def: &accel.Definition{
		Kind: "qemu-edu", Resource: "qemu.org/edu", Title: "QEMU educational device",
		Nodes:     []accel.NodeSource{{Glob: "x"}},
		Container: accel.Edits{Env: []string{"EDU=1"}},
	}}
	b.mkdir("/var/lib/kubelet/plugins_registry")
	b.mkdir("/var/run/cdi")
	return b
}

func (b *bed) mkdir(name string) {
	b.Helper()
	if err := os.MkdirAll(filepath.Join(b.root, name), 0o755); err != nil {
		b.Fatal(err)
	}
}

// plugin creates a plugin that has the devices; it does not run yet.
func (b *bed) plugin(accs ...accel.Accelerator) *Plugin {
	b.Helper()
	l, err := ledger.Open(b.host, "/var/lib/acceld", nil)
	if err != nil {
		b.Fatal(err)
	}
	p := New(Config{
		Definition: b.def, Node: node, Host: b.host, Ledger: l, StateDir: "/var/lib/acceld", API: b.server,
		Machine: func() accel.Machine {
			return accel.Machine{
				Facts: accel.Facts{PCI: b.pci},
				Have:  map[string]accel.Have{"qemu-edu": {Driver: accel.DriverHave{Version: "1.0.0"}}},
			}
		},
		Edits: func(def *accel.Definition, a accel.Accelerator) (shared, own specs.ContainerEdits,
			problem *accel.Problem,
		) {
			shared.Env = def.Container.Env
			for _, n := range a.Nodes {
				own.DeviceNodes = append(own.DeviceNodes, &specs.DeviceNode{Path: n.Path})
			}
			return shared, own, nil
		},
		Log: slog.New(slog.NewTextHandler(b.Output(), nil)),
	})
	p.timing.settle, p.timing.retry.First, p.timing.stop = time.Millisecond, 10*time.Millisecond, 50*time.Millisecond
	p.timing.remote = p.timing.retry
	if len(accs) > 0 {
		p.Update(accs)
	}
	return p
}

// run runs a plugin until the returned function is called or the test ends.
func (b *bed) run(p *Plugin) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("Run: %v", err)
		}
	})
	b.Cleanup(stop)
	return stop
}

// kubelet does for one driver what the kubelet's plugin watcher and DRA manager do.
type kubelet struct {
	*bed
	mu       sync.Mutex
	conns    map[string]*grpc.ClientConn // by registration socket
	order    []string
	refusals int
	over     chan struct{}
}

func (b *bed) kubelet() *kubelet {
	b.Helper()
	k := &kubelet{bed: b, conns: map[string]*grpc.ClientConn{}, over: make(chan struct{})}
	go k.watch()
	b.Cleanup(k.stop)
	return k
}

func (k *kubelet) watch() {
	for {
		k.look()
		select {
		case <-k.over:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (k *kubelet) look() {
	dir := filepath.Join(k.root, "/var/lib/kubelet/plugins_registry")
	found, _ := filepath.Glob(filepath.Join(dir, "*.sock"))
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.over:
		return
	default:
	}
	for name, conn := range k.conns {
		if !slices.Contains(found, name) {
			conn.Close()
			delete(k.conns, name)
			k.order = slices.DeleteFunc(k.order, func(o string) bool { return o == name })
		}
	}
	for _, name := range found {
		if k.conns[name] == nil {
			k.register(name)
		}
	}
}

func (k *kubelet) register(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+name, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return
	}
	if k.refusals > 0 {
		k.refusals--
		client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{Error: "not today"})
		return
	}
	plugin, err := grpc.NewClient("unix:"+filepath.Join(k.root, info.GetEndpoint()),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return
	}
	plugin.Connect()
	k.conns[name] = plugin
	k.order = append(k.order, name)
	client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true})
}

func (k *kubelet) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.over:
	default:
		close(k.over)
	}
	for name, conn := range k.conns {
		conn.Close()
		delete(k.conns, name)
	}
	k.order = nil
}

// conn waits for the newest connection.
func (k *kubelet) conn() *grpc.ClientConn {
	k.Helper()
	var conn *grpc.ClientConn
	k.until("a plugin to be registered", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.order) > 0 {
			conn = k.conns[k.order[len(k.order)-1]]
		}
		return conn != nil
	})
	return conn
}

// until waits for something that follows an event.
func (b *bed) until(what string, is func() bool) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("waited in vain for %s", what)
		}
	}
}

func ref(name, uid string) *drapb.Claim {
	return &drapb.Claim{Namespace: "team", Name: name, Uid: uid}
}

// prepare prepares one claim and returns the CDI names or the error.
func prepare(t *testing.T, p *Plugin, name, uid string) ([]string, string) {
	t.Helper()
	resp, err := claims{Plugin: p}.NodePrepareResources(t.Context(),
		&drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{ref(name, uid)}})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, d := range resp.GetClaims()[uid].GetDevices() {
		ids = append(ids, d.GetCdiDeviceIds()...)
	}
	return ids, resp.GetClaims()[uid].GetError()
}

func unprepare(t *testing.T, p *Plugin, uid string) string {
	t.Helper()
	resp, err := claims{Plugin: p}.NodeUnprepareResources(t.Context(),
		&drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{ref("x", uid)}})
	if err != nil {
		t.Fatal(err)
	}
	answer, there := resp.GetClaims()[uid]
	if !there {
		t.Errorf("no answer about claim %s", uid)
	}
	return answer.GetError()
}

// edu is the i-th healthy device.
func edu(i int) accel.Accelerator {
	return accel.Accelerator{
		ID: fmt.Sprintf("0000:%02x:00.0", i), NUMANode: -1, Bound: "edu",
		Nodes:  []accel.DeviceNode{{Path: fmt.Sprintf("/dev/edu%d", i)}},
		Health: accel.Health{State: accel.Healthy},
	}
}

func sick(a accel.Accelerator) accel.Accelerator {
	a.Health = accel.Health{
		State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "ecc error",
		Since: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC),
	}
	return a
}

func edus(n int) []accel.Accelerator {
	var all []accel.Accelerator
	for i := range n {
		all = append(all, edu(i+1))
	}
	return all
}

func prepareOne(ctx context.Context, p *Plugin, c *drapb.Claim) (record, *accel.Problem) {
	return claims{Plugin: p}.prepare(ctx, c)
}

func unprepareOne(p *Plugin, uid string) *accel.Problem { return claims{Plugin: p}.unprepare(uid) }
