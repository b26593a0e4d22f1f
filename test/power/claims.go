package power

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/vendors"
)

// claims is the area of resource claims that the kubelet was told are prepared. The kubelet and the API server are
// played.
type claims struct{}

// prepared is what the area promises: the CDI devices of each claim, by UID.
type prepared struct{ Claims map[string][]string }

const (
	node    = "bed-node"
	devices = 4
)

// apiServer is the little of one that says what claims were given; away, it answers nothing.
type apiServer struct{ away bool }

func (s apiServer) Do(_ context.Context, _, name string, _ url.Values, _, into any) error {
	if s.away || !strings.Contains(name, "/resourceclaims/") {
		return errors.New("no route to host")
	}
	uid := path.Base(name)
	var number int
	if _, err := fmt.Sscanf(uid, "claim-%d", &number); err != nil {
		return err
	}
	return json.Unmarshal(fmt.Appendf(nil,
		`{"metadata":{"name":%q,"namespace":"team","uid":%q},"status":{"allocation":{"devices":{"results":[
		{"request":"gpu","driver":"qemu-edu.acceld.dev","pool":%q,"device":%q}]}},"reservedFor":[{"resource":"pods","name":"pod","uid":"pod-uid"}]}}`,
		uid, uid, node, fmt.Sprintf("0000-%02x-00-0", number%devices+1)), into)
}

func (apiServer) Watch(context.Context, string, url.Values) (io.ReadCloser, error) {
	return nil, errors.New("no route to host")
}

// complaints hears what the plugin says of records that it cannot read.
type complaints struct {
	mu    sync.Mutex
	about []string
}

func (c *complaints) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (c *complaints) WithAttrs([]slog.Attr) slog.Handler           { return c }
func (c *complaints) WithGroup(string) slog.Handler                { return c }

func (c *complaints) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "record of a claim") {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		c.mu.Lock()
		defer c.mu.Unlock()
		c.about = append(c.about, text)
	}
	return nil
}

// agent is a plugin at work, and the kubelet's connection to it.
type agent struct {
	complaints
	root string
	old  []string // sockets of the boot before
	conn *grpc.ClientConn
	stop func()
}

// serve starts a plugin on the host at root, as an agent does.
func serve(root string, api apiServer) (*agent, error) {
	h, err := host.New(root)
	if err != nil {
		return nil, err
	}
	defs, problem := vendors.Definitions()
	if problem != nil {
		return nil, problem
	}
	l, err := ledger.Open(h, "/var/lib/acceld", nil)
	if err != nil {
		return nil, err
	}
	a := &agent{root: root}
	p := dra.New(dra.Config{
		Definition: defs[kind], Node: node, Host: h, Ledger: l, StateDir: "/var/lib/acceld", API: api,
		Machine: func() accel.Machine { return accel.Machine{} },
		Edits: func(_ *accel.Definition, acc accel.Accelerator) (shared, own specs.ContainerEdits,
			problem *accel.Problem,
		) {
			own.DeviceNodes = []*specs.DeviceNode{{Path: acc.Nodes[0].Path}}
			return shared, own, nil
		},
		Log: slog.New(&a.complaints),
	})
	var accs []accel.Accelerator
	for i := range devices {
		accs = append(accs, accel.Accelerator{
			ID: fmt.Sprintf("0000:%02x:00.0", i+1), NUMANode: -1, Bound: "edu",
			Nodes: []accel.DeviceNode{{Path: fmt.Sprintf("/dev/edu%d", i)}}, Health: accel.Health{State: accel.Healthy},
		})
	}
	p.Update(accs)
	a.old = sockets(root) // of the boot before
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if err := p.Run(ctx); err != nil && ctx.Err() == nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.about = append(a.about, "the plugin ended: "+err.Error())
		}
	}()
	a.stop = func() {
		if a.conn != nil {
			a.conn.Close()
		}
		cancel()
		<-gone
	}
	return a, nil
}

// sockets are those that the kubelet finds.
func sockets(root string) []string {
	// only a malformed pattern is an error
	found, _ := filepath.Glob(filepath.Join(root, "var/lib/kubelet/plugins_registry/*.sock"))
	return found
}

// register does what the kubelet does with a plugin that it finds.
func (a *agent) register(ctx context.Context, socket string) error {
	credentials := grpc.WithTransportCredentials(insecure.NewCredentials())
	found, err := grpc.NewClient("unix:"+socket, credentials)
	if err != nil {
		return err
	}
	defer found.Close()
	client := registration.NewRegistrationClient(found)
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(a.root, info.GetEndpoint()), credentials)
	if err != nil {
		return err
	}
	conn.Connect()
	if _, err := client.NotifyRegistrationStatus(ctx,
		&registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		conn.Close()
		return err
	}
	if a.conn != nil {
		a.conn.Close()
	}
	a.conn = conn
	return nil
}

// call calls the plugin, and again over a new registration when it does not answer: it serves on other sockets when a
// kubelet is slow to come.
func (a *agent) call(do func(context.Context, drapb.DRAPluginClient) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		err := errors.New("there is no socket of a plugin")
		if a.conn != nil {
			err = do(ctx, drapb.NewDRAPluginClient(a.conn))
		}
		if err == nil || a.conn != nil && status.Code(err) != codes.Unavailable {
			return err
		}
		for _, socket := range sockets(a.root) {
			if !slices.Contains(a.old, socket) {
				err = errors.Join(err, a.register(ctx, socket))
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// prepare asks for claims as the kubelet does, and returns the CDI devices of each, or why not.
func (a *agent) prepare(uids ...string) (given map[string][]string, refused map[string]string, err error) {
	req := &drapb.NodePrepareResourcesRequest{}
	for _, uid := range uids {
		req.Claims = append(req.Claims, &drapb.Claim{Namespace: "team", Name: uid, Uid: uid})
	}
	var resp *drapb.NodePrepareResourcesResponse
	err = a.call(func(ctx context.Context, client drapb.DRAPluginClient) (err error) {
		resp, err = client.NodePrepareResources(ctx, req)
		return err
	})
	given, refused = map[string][]string{}, map[string]string{}
	for uid, c := range resp.GetClaims() {
		if c.GetError() != "" {
			refused[uid] = c.GetError()
			continue
		}
		for _, d := range c.GetDevices() {
			given[uid] = append(given[uid], d.GetCdiDeviceIds()...)
		}
	}
	return given, refused, err
}

func (a *agent) unprepare(uids ...string) error {
	req := &drapb.NodeUnprepareResourcesRequest{}
	for _, uid := range uids {
		req.Claims = append(req.Claims, &drapb.Claim{Namespace: "team", Name: uid, Uid: uid})
	}
	var resp *drapb.NodeUnprepareResourcesResponse
	err := a.call(func(ctx context.Context, client drapb.DRAPluginClient) (err error) {
		resp, err = client.NodeUnprepareResources(ctx, req)
		return err
	})
	for uid, c := range resp.GetClaims() {
		if c.GetError() != "" {
			err = errors.Join(err, fmt.Errorf("%s: %s", uid, c.GetError()))
		}
	}
	return err
}

// Prepare makes a host with a kubelet.
func (claims) Prepare(dir string) error {
	return errors.Join(os.MkdirAll(filepath.Join(dir, "host/var/lib/kubelet/plugins_registry"), 0o755),
		os.MkdirAll(filepath.Join(dir, "host/proc/sys/kernel/random"), 0o755))
}

// Work prepares claims and takes them back, one by one and several at a time.
func (claims) Work(dir string, mark Mark) error {
	root := filepath.Join(dir, "host")
	if err := errors.Join(boot(root, 0), os.MkdirAll(filepath.Join(root, "var"), 0o755)); err != nil {
		return err
	}
	_ = os.Symlink("../run", filepath.Join(root, "var/run"))
	a, err := serve(root, apiServer{})
	if err != nil {
		return err
	}
	defer func() { a.stop() }()
	now := prepared{map[string][]string{}}
	if err := mark("start", now); err != nil {
		return err
	}
	var held [][]string // the oldest first
	for number := 0; number < 24; {
		batch := []string{fmt.Sprintf("claim-%d", number)}
		number++
		if number%3 == 0 {
			batch = append(batch, fmt.Sprintf("claim-%d", number))
			number++
		}
		for len(slices.Concat(held...))+len(batch) > devices {
			if err := a.unprepare(held[0]...); err != nil {
				return err
			}
			for _, uid := range held[0] {
				delete(now.Claims, uid)
			}
			held = held[1:]
			if err := mark("taken back", now); err != nil {
				return err
			}
		}
		given, refused, err := a.prepare(batch...)
		if err != nil || len(refused) > 0 {
			return fmt.Errorf("claims %q are not prepared: %w %q", batch, err, refused)
		}
		for uid, ids := range given {
			now.Claims[uid] = ids
		}
		held = append(held, batch)
		if err := mark("prepared", now); err != nil {
			return err
		}
	}
	return nil
}

// Check: the API server is away after the cut. Each claim that the kubelet was told is prepared is known, and given as
// before; one that it has never asked for is not; and all can be taken back.
func (claims) Check(dir string, c Cut) (wrong Wrong, err error) {
	root := filepath.Join(dir, "host")
	if err := boot(root, c.Number+1); err != nil {
		return wrong, err
	}
	var before, after prepared
	if err := errors.Join(json.Unmarshal(c.Before, &before), json.Unmarshal(c.After, &after)); err != nil {
		return wrong, err
	}
	a, err := serve(root, apiServer{away: true})
	if err != nil {
		wrong.broken("no plugin: %v", err)
		return wrong, nil
	}
	defer func() { a.stop() }()
	var uids []string
	for uid, ids := range before.Claims {
		if slices.Equal(after.Claims[uid], ids) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	given, refused, err := a.prepare(append(uids, "claim-99")...)
	if err != nil {
		return wrong, err
	}
	for _, uid := range uids {
		if !slices.Equal(given[uid], before.Claims[uid]) {
			wrong.broken("%s has %q, it had %q: %s", uid, given[uid], before.Claims[uid], refused[uid])
		}
	}
	if refused["claim-99"] == "" {
		wrong.broken("a claim is prepared that nobody has asked for")
	}
	for uid := range after.Claims {
		if !slices.Contains(uids, uid) {
			uids = append(uids, uid) // it may be prepared or not
		}
	}
	if err := a.unprepare(uids...); err != nil {
		wrong.broken("cannot take claims back: %v", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	wrong.Torn = append(wrong.Torn, a.about...)
	return wrong, nil
}
