package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"path"
	"regexp"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthalpha "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbbeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// service is one registration with two sockets of its own: one that the kubelet discovers, and one that it then
// calls. The kubelet refuses an endpoint that it already knows for the driver (pkg/kubelet/cm/dra/plugin), so each
// name is used only once.
type service struct {
	registration.UnsafeRegistrationServer
	*Plugin

	endpoint  string // the socket that the kubelet calls, as the host sees it
	announced string // the socket that the kubelet discovers
	servers   []*grpc.Server
	// connections is the number of the kubelet's open connections; told gets a value after each change.
	connections atomic.Int32
	reported    chan struct{}
	// verdicts are the kubelet's answers to the registration; empty means accepted.
	verdicts chan string
	// over is closed to end the streams.
	over chan struct{}
}

// serve listens on two new sockets. The endpoint comes first, because the kubelet calls it as soon as it discovers
// the other.
func (p *Plugin) serve() (*service, *accel.Problem) {
	name := fmt.Sprintf("%08x", rand.Uint32())
	s := &service{
		Plugin: p, endpoint: path.Join(p.directory, "dra-"+name+".sock"),
		announced: path.Join(p.registry, "acceld-"+p.cfg.Definition.Kind+"-"+name+"-reg.sock"),
		reported:  make(chan struct{}, 1), verdicts: make(chan string, 8), over: make(chan struct{}),
	}
	if !p.cfg.Host.Exists(p.directory) {
		if err := p.cfg.Ledger.MkdirAll(p.directory, 0o750); err != nil { // a purge removes it
			return nil, listening(p.directory, err)
		}
	}
	if problem := s.listen(s.endpoint, func(g *grpc.Server) {
		drapb.RegisterDRAPluginServer(g, claims{Plugin: p})
		drapbbeta.RegisterDRAPluginServer(g, drapbbeta.V1ServerWrapper{DRAPluginServer: claims{Plugin: p}})
		drahealth.RegisterDRAResourceHealthServer(g, watcher{Plugin: p, over: s.over})
		drahealthalpha.RegisterDRAResourceHealthServer(g,
			drahealth.V1ServerWrapper{Server: watcher{Plugin: p, over: s.over}})
	}, grpc.StatsHandler(s)); problem != nil {
		return nil, problem
	}
	if problem := s.listen(s.announced, func(g *grpc.Server) {
		registration.RegisterRegistrationServer(g, s)
	}); problem != nil {
		s.stop()
		return nil, problem
	}
	return s, nil
}

// listen serves on a socket that only root may use.
func (s *service) listen(name string, services func(*grpc.Server), o ...grpc.ServerOption) *accel.Problem {
	socket, err := s.cfg.Host.Path(name)
	if err != nil {
		return listening(name, err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return listening(name, err)
	}
	if err := s.cfg.Host.Chmod(name, 0o600); err != nil {
		_ = l.Close() // the error of Chmod is the one that matters
		return listening(name, err)
	}
	g := grpc.NewServer(append(o, grpc.UnaryInterceptor(caught),
		grpc.StreamInterceptor(caughtStream))...)
	services(g)
	s.servers = append(s.servers, g)
	guard.Go(func() { _ = g.Serve(l) }) // ends with stop; a failure shows as an absent kubelet
	return nil
}

func listening(name string, err error) *accel.Problem {
	return accel.Problemf(accel.ReasonForError(err, accel.RegistrationFailed), "cannot listen on %q: %v", name, err)
}

// stop removes the announcement, gives calls in flight a moment to finish, and removes the sockets.
func (s *service) stop() {
	close(s.over)
	for _, g := range slices.Backward(s.servers) {
		forced := time.AfterFunc(s.timing.stop, g.Stop)
		g.GracefulStop() // closes the listener, which unlinks the socket
		forced.Stop()
	}
}

// caught turns a panic in a call into an error, so that it does not affect the other kinds.
func caught(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	err = answered(info.FullMethod, func() (err error) { resp, err = handler(ctx, req); return err })
	return resp, err
}

// caughtStream does the same for a stream.
func caughtStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return answered(info.FullMethod, func() error { return handler(srv, stream) })
}

func answered(method string, call func() error) error {
	err := guard.Try(call)
	var p *guard.Panic
	if errors.As(err, &p) {
		return status.Errorf(codes.Internal, "cannot answer %s: %v", method, p)
	}
	return err
}

// GetInfo tells the kubelet which socket to call and which services it has.
func (s *service) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DRAPlugin, Name: s.driver, Endpoint: s.endpoint,
		SupportedVersions: []string{
			drapb.DRAPluginService, drapbbeta.DRAPluginService,
			drahealth.DRAResourceHealthService, drahealthalpha.DRAResourceHealthService,
		},
	}, nil
}

// NotifyRegistrationStatus receives the kubelet's verdict.
func (s *service) NotifyRegistrationStatus(_ context.Context,
	v *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	text := ""
	if !v.GetPluginRegistered() {
		text = cmp.Or(v.GetError(), "no reason given")
	}
	select {
	case s.verdicts <- text:
	default: // the channel is full of unread verdicts
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// TagConn implements [stats.Handler], which counts the kubelet's connections here.
func (s *service) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn counts connections as they begin and end.
func (s *service) HandleConn(_ context.Context, e stats.ConnStats) {
	switch e.(type) {
	case *stats.ConnBegin:
		s.connections.Add(1)
	case *stats.ConnEnd:
		s.connections.Add(-1)
	}
	signal(s.reported)
}

// TagRPC does nothing.
func (s *service) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC does nothing.
func (s *service) HandleRPC(context.Context, stats.RPCStats) {}

// removeLeftovers removes the sockets of a killed agent, on which nobody listens any more. As long as the socket
// that it discovered exists, the kubelet takes the plugin for alive.
func (p *Plugin) removeLeftovers(now time.Time) {
	for dir, form := range map[string]string{
		p.registry:  `^acceld-` + regexp.QuoteMeta(p.cfg.Definition.Kind) + `-[0-9a-f]{8}-reg\.sock$`,
		p.directory: `^dra-[0-9a-f]{8}\.sock$`,
	} {
		entries, err := p.cfg.Host.ReadDir(dir)
		if err != nil {
			continue // listen reports what is wrong with the directory
		}
		ours := regexp.MustCompile(form)
		for _, e := range entries {
			info, err := e.Info()
			// Between bind and listen, a socket that is about to be used refuses connections too.
			if err != nil || info.Mode().Type() != fs.ModeSocket || !ours.MatchString(e.Name()) ||
				now.Sub(info.ModTime()) < time.Second {
				continue
			}
			name := path.Join(dir, e.Name())
			if socket, err := p.cfg.Host.Path(name); err == nil && deserted(socket) {
				_ = p.cfg.Host.Remove(name) // the next registration tries again
			}
		}
	}
}

// deserted reports whether nobody listens on a socket.
func deserted(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		_ = c.Close() // a live agent keeps its socket
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
