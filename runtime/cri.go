package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/runtime/engine"
)

// ask is the timeout of one call to the runtime.
const ask = 2 * time.Second

// client asks the container runtime.
type client struct {
	host  *host.Host
	live  func() bool // reports whether the host is the running machine's own
	asked time.Time   // when a daemon was last asked for its version; the Runtime's mu guards it and what follows
	shim  shim
	crio  crioAnswer
}

// running reports whether there is a daemon whose configuration in force can differ from its files.
func (cl *client) running(e accel.ContainerEngine) bool {
	return cl.live() && e.PID > 0 && engine.RowOf(e.Name).Daemon
}

// question makes one call to the runtime's CRI socket below the host's root, with the timeout [ask].
func (cl *client) question(ctx context.Context, e accel.ContainerEngine,
	put func(context.Context, cri.RuntimeServiceClient) error,
) error {
	if !strings.HasPrefix(e.Endpoint, "unix://") {
		return fmt.Errorf("cannot ask the container runtime: %q is not a socket", e.Endpoint)
	}
	ctx, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///cri", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return cl.dial(ctx, e.Endpoint)
		}))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing left to send
	return put(ctx, cri.NewRuntimeServiceClient(conn))
}

// pods returns the ids of the running pods, sorted.
func (cl *client) pods(ctx context.Context, e accel.ContainerEngine) ([]string, error) {
	if !engine.RowOf(e.Name).CRI {
		return nil, nil
	}
	var ids []string
	err := cl.question(ctx, e, func(ctx context.Context, c cri.RuntimeServiceClient) error {
		list, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			return fmt.Errorf("cannot list the pods: %w", err)
		}
		for _, p := range list.GetItems() {
			if p.GetState() == cri.PodSandboxState_SANDBOX_READY {
				ids = append(ids, p.GetId())
			}
		}
		return nil
	})
	slices.Sort(ids)
	return ids, err
}

// creating reports whether a container is created but not started yet. It returns true if the runtime does not
// answer.
func (cl *client) creating(ctx context.Context, e accel.ContainerEngine) bool {
	if !engine.RowOf(e.Name).CRI {
		return false
	}
	var list *cri.ListContainersResponse
	err := cl.question(ctx, e, func(ctx context.Context, c cri.RuntimeServiceClient) (err error) {
		list, err = c.ListContainers(ctx, &cri.ListContainersRequest{})
		return err
	})
	return err != nil || slices.ContainsFunc(list.GetContainers(), func(c *cri.Container) bool {
		return c.GetState() == cri.ContainerState_CONTAINER_CREATED
	})
}

// alive checks once whether the runtime is ready and has all the pods in before.
func (cl *client) alive(ctx context.Context, e accel.ContainerEngine, before []string) error {
	if !engine.RowOf(e.Name).CRI {
		conn, err := cl.dial(ctx, e.Endpoint)
		if err != nil {
			return errors.New("nobody listens at its socket")
		}
		return conn.Close()
	}
	err := cl.question(ctx, e, func(ctx context.Context, c cri.RuntimeServiceClient) error {
		status, err := c.Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return fmt.Errorf("cannot ask for its status: %w", err)
		}
		for _, s := range status.GetStatus().GetConditions() {
			if s.GetType() == "RuntimeReady" && !s.GetStatus() {
				return fmt.Errorf("it is not ready: %s", s.GetMessage())
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	after, err := cl.pods(ctx, e)
	if err != nil {
		return err
	}
	lost := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return slices.Contains(after, id) })
	if len(lost) > 0 {
		return fmt.Errorf("it has lost %d of %d pods, %s among them", len(lost), len(before), lost[0])
	}
	return nil
}

// version returns the version of e. It asks the daemon if the version from its program is too coarse to decide whether
// it reads specs. It asks at most once a minute, so that not every look has to wait for a daemon that does not answer.
func (cl *client) version(e accel.ContainerEngine) string {
	const often = time.Minute
	row := engine.RowOf(e.Name)
	if !row.Versioned || strings.Contains(e.Version, ".") || time.Since(cl.asked) < often || !cl.running(e) {
		return e.Version
	}
	version, err := cl.apiVersion(e, row.VersionPath)
	if err != nil { // for docker, cri-dockerd answers
		version, err = cl.criVersion(e)
	}
	if version = strings.TrimPrefix(version, "v"); err != nil || !wellFormed.MatchString(version) {
		cl.asked = time.Now()
		return e.Version
	}
	cl.asked = time.Time{}
	return version
}

var wellFormed = regexp.MustCompile(`^[0-9]+\.[0-9A-Za-z.+~-]{1,60}$`)

func (cl *client) criVersion(e accel.ContainerEngine) (string, error) {
	var v *cri.VersionResponse
	err := cl.question(context.Background(), e, func(ctx context.Context, c cri.RuntimeServiceClient) (err error) {
		v, err = c.Version(ctx, &cri.VersionRequest{})
		return err
	})
	if err == nil && v.GetRuntimeName() != e.Name {
		err = fmt.Errorf("it is %q", v.GetRuntimeName())
	}
	return v.GetRuntimeVersion(), err
}

// apiVersion asks the daemon's own HTTP API, which has the version at the path.
func (cl *client) apiVersion(e accel.ContainerEngine, path string) (string, error) {
	if path == "" {
		return "", fs.ErrNotExist
	}
	data, err := cl.get(e.Endpoint, path)
	if err != nil {
		return "", err
	}
	var v struct{ Version string }
	err = json.Unmarshal(data, &v)
	return v.Version, err
}

// crioConfig is the part of CRI-O's complete configuration that acceld needs. A list is nil if CRI-O does not say.
type crioConfig struct {
	Crio struct {
		Runtime struct {
			HooksDir    []string `toml:"hooks_dir"`
			CDISpecDirs []string `toml:"cdi_spec_dirs"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

// crioAnswer is what a running CRI-O said when it was asked for its configuration.
type crioAnswer struct {
	pid     int
	started time.Time
	config  crioConfig
	// quiet is when CRI-O may be asked again after it did not answer.
	quiet time.Time
}

// configOf returns what a running CRI-O says about its configuration. CRI-O is asked once: what it says of these
// keys is what it read at its start (cri-o/cri-o, pkg/config/reload.go). If it does not answer, it is not
// asked again for ten times as long as that took.
func (cl *client) configOf(e accel.ContainerEngine) crioConfig {
	a := &cl.crio
	if e.PID == 0 || a.pid != e.PID || !a.started.Equal(e.Started) {
		*a = crioAnswer{pid: e.PID, started: e.Started}
	}
	if began := time.Now(); !a.config.answered() && !began.Before(a.quiet) {
		a.config = cl.crioConfig(e)
		a.quiet = time.Now().Add(10 * time.Since(began))
	}
	return a.config
}

func (c crioConfig) answered() bool {
	return c.Crio.Runtime.HooksDir != nil || c.Crio.Runtime.CDISpecDirs != nil
}

// crioConfig asks a running CRI-O for its configuration, with what its command line and environment say. It is empty
// if nobody answers.
func (cl *client) crioConfig(e accel.ContainerEngine) crioConfig {
	var c crioConfig
	if e.Name != "cri-o" {
		return c
	}
	if b, err := cl.get(e.Endpoint, "/config"); err != nil || toml.Unmarshal(b, &c) != nil {
		return crioConfig{}
	}
	return c
}

// maxAnswer is the longest answer of a daemon that is read, in bytes.
const maxAnswer = 1 << 20

// get sends an HTTP request to a daemon's socket.
func (cl *client) get(endpoint, path string) ([]byte, error) {
	socket := strings.TrimPrefix(endpoint, "unix://")
	if st, err := cl.host.Stat(socket); err != nil || st.Mode().Type() != fs.ModeSocket {
		return nil, fs.ErrNotExist
	}
	client := http.Client{
		Timeout: ask,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return cl.dial(ctx, endpoint)
			},
		},
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://runtime"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // nothing more of it is needed
	if resp.StatusCode != http.StatusOK {
		return nil, fs.ErrInvalid
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if len(b) > maxAnswer {
		return nil, fmt.Errorf("the answer of %q is longer than %d bytes", socket, maxAnswer)
	}
	return b, err
}

// dial connects to the socket of an endpoint below the host's root.
func (cl *client) dial(ctx context.Context, endpoint string) (net.Conn, error) {
	file, err := cl.host.Path(strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", file)
}
