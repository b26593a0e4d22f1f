package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// callDeadline is this plugin's own deadline for one call. The kubelet's Allocate has none, and a call that hangs
// stops the admission of every pod on the node.
const callDeadline = 2 * time.Second

// service is one registration: its own socket and what is served on it. A second registration under the same name
// would corrupt the kubelet's bookkeeping (measured on 1.37.1), so each name is used only once.
type service struct {
	pluginapi.UnsafeDevicePluginServer
	cfg  Config
	list *inventory
	// chooser knows which devices were chosen outside the kubelet.
	chooser *chooser

	path     string
	listener net.Listener
	// inherited listen where the previous process did, see inherit.
	inherited []net.Listener
	server    *grpc.Server
	opened    chan struct{} // closed when the kubelet has the first list
	ended     chan struct{} // closed when that stream has ended
	closing   chan struct{} // closed to end the stream from this side
	streamed  atomic.Bool   // there was a ListAndWatch
}

// serve listens on a new socket. Serving starts before registering, because the kubelet dials back during Register.
func (p *Plugin) serve() (*service, *accel.Problem) {
	name := fmt.Sprintf("acceld-%s-%08x.sock", p.cfg.Definition.Kind, rand.Uint32())
	s := &service{
		cfg: p.cfg, list: p.list, chooser: p.chooser,
		path:    filepath.Join(p.cfg.Dir, name),
		opened:  make(chan struct{}),
		ended:   make(chan struct{}),
		closing: make(chan struct{}),
	}
	l, err := listen(s.path)
	if err != nil {
		return nil, accel.ProblemOr(err, accel.RegistrationFailed, "cannot serve %q", p.cfg.Resource)
	}
	s.server = grpc.NewServer(grpc.UnaryInterceptor(bounded), grpc.StreamInterceptor(caught))
	pluginapi.RegisterDevicePluginServer(s.server, s)
	s.listener = keeping{l, p.cfg.Connections, p.cfg.Resource}
	guard.Go(func() { _ = s.server.Serve(s.listener) }) // ends with stop; a failure shows as the end of the stream
	return s, nil
}

// stop ends the stream, gives calls in flight at most patience to finish, and removes the socket. If the process
// leaves its connections to the next one, stop does not end the stream: the process continues to answer until it
// exits.
func (s *service) stop(patience time.Duration) {
	if s.cfg.Connections.Leaving() {
		_ = s.listener.Close() // unlinks the socket; nobody could act on an error
		s.disinherit()
		s.list.quiet(patience)
		return
	}
	close(s.closing)
	forced := time.AfterFunc(patience, s.server.Stop)
	s.server.GracefulStop() // closes the listener, which unlinks the socket
	forced.Stop()
	_ = os.Remove(s.path) // still there only if the listener could not unlink it
}

// caught turns a panic in a stream into its end, so that it does not affect the other kinds.
func caught(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := guard.Try(func() error { return handler(srv, stream) })
	var p *guard.Panic
	if errors.As(err, &p) {
		return status.Errorf(codes.Internal, "cannot answer %s: %v", info.FullMethod, p)
	}
	return err
}

// bounded gives a call a deadline and turns a panic in it into an error, so that it does not affect the other kinds.
func bounded(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	type result struct {
		resp any
		err  error
	}
	done := make(chan result, 1)
	guard.Go(func() {
		var resp any
		err := guard.Try(func() (err error) { resp, err = handler(ctx, req); return err })
		var p *guard.Panic
		if errors.As(err, &p) {
			err = status.Errorf(codes.Internal, "cannot answer %s: %v", info.FullMethod, p)
		}
		done <- result{resp, err}
	})
	deadline := time.NewTimer(callDeadline)
	defer deadline.Stop()
	var r result
	select {
	case r = <-done:
	case <-deadline.C:
		r.err = status.Errorf(codes.DeadlineExceeded, "cannot answer %s within %s", info.FullMethod, callDeadline)
	}
	if _, advisory := req.(*pluginapi.PreferredAllocationRequest); advisory && r.err != nil {
		return &pluginapi.PreferredAllocationResponse{}, nil // the kubelet then chooses on its own
	}
	return r.resp, r.err
}

// GetDevicePluginOptions says which optional calls the kubelet may make.
func (s *service) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

// PreStartContainer does nothing: the options do not request it.
func (s *service) PreStartContainer(context.Context,
	*pluginapi.PreStartContainerRequest,
) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}

// ListAndWatch sends the list, and sends it again after each change that the kubelet can see. The kubelet opens one
// stream per registration; further ones are served but do not count.
func (s *service) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	first := !s.streamed.Swap(true)
	if first {
		defer close(s.ended)
	}
	sent := -1
	for {
		l := s.list.load()
		if l.revision != sent {
			if err := stream.Send(l.message); err != nil {
				return err
			}
			if first && sent < 0 {
				close(s.opened)
			}
			sent = l.revision
		}
		select {
		case <-l.replaced:
		case <-stream.Context().Done():
			return nil
		case <-s.closing:
			return nil
		}
	}
}

// leftover is the minimum age at which a socket counts as left behind: between bind and listen, a socket that is
// about to be used refuses connections too.
const leftover = time.Second

// removeLeftovers removes the sockets of a killed agent: those of this kind on which nobody listens any more.
func removeLeftovers(dir, kind string, now time.Time) {
	ours := socketName(kind)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // registering reports what is wrong with the directory
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Type() != fs.ModeSocket || !ours.MatchString(e.Name()) ||
			now.Sub(info.ModTime()) < leftover {
			continue
		}
		path := filepath.Join(dir, e.Name())
		c, err := net.DialTimeout("unix", path, leftover)
		if err == nil {
			_ = c.Close() // a live agent keeps its socket
			continue
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path) // the next registration tries again
		}
	}
}
