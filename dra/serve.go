package dra

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"path"
	"regexp"
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
)

// service is one registration: two sockets with names of their own, the one that the kubelet finds and the one that it
// then calls. The kubelet refuses a driver's endpoint that it knows already (pkg/kubelet/cm/dra/plugin), so that every
// name is used once.
type service struct {
	registration.UnsafeRegistrationServer
	*Plugin

	endpoint  string // the socket that is called, as the host sees it
	announced string // the socket that is found
	servers   []*grpc.Server
	// connections of the kubelet that are open; told after each change.
	connections atomic.Int32
	told        chan struct{}
	// verdicts are what the kubelet says about the registration; empty for yes.
	verdicts chan string
	// over is closed to end the streams.
	over chan struct{}
}

func (c Config) registry() string { return path.Join(c.KubeletRoot, "plugins_registry") }

func (c Config) directory(driver string) string { return path.Join(c.KubeletRoot, "plugins", driver) }

// serve listens on new sockets, on the one that is called first: the kubelet calls as soon as it has found the other.
func (p *Plugin) serve() (*service, *accel.Problem) {
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	name := hex.EncodeToString(id[:])
	s := &service{
		Plugin: p, endpoint: path.Join(p.cfg.directory(p.driver), "dra-"+name+".sock"),
		announced: path.Join(p.cfg.registry(), "acceld-"+p.cfg.Definition.Kind+"-"+name+"-reg.sock"),
		told:      make(chan struct{}, 1), verdicts: make(chan string, 8), over: make(chan struct{}),
	}
	if !p.cfg.Host.Exists(p.cfg.directory(p.driver)) {
		if err := p.cfg.Ledger.MkdirAll(p.cfg.directory(p.driver), 0o750); err != nil { // a purge takes it away
			return nil, listening(p.cfg.directory(p.driver), err)
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

// listen serves on a socket that root alone may use.
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
		_ = l.Close() // the error that matters is the one before
		return listening(name, err)
	}
	g := grpc.NewServer(append(o, grpc.UnaryInterceptor(guard))...)
	services(g)
	s.servers = append(s.servers, g)
	go func() { _ = g.Serve(l) }() // ends with stop; what it fails with shows as a kubelet that is not there
	return nil
}

func listening(name string, err error) *accel.Problem {
	return accel.Problemf(accel.ReasonForError(err, accel.RegistrationFailed), "cannot listen on %q: %v", name, err)
}

// stop takes the announcement away, lets calls in flight finish for a moment, and removes the sockets.
func (s *service) stop() {
	close(s.over)
	for i := len(s.servers) - 1; i >= 0; i-- {
		g := s.servers[i]
		forced := time.AfterFunc(s.timing.stop, g.Stop)
		g.GracefulStop() // closes the listener, which unlinks the socket
		forced.Stop()
	}
}

// guard keeps a panic in a call away from the other kinds.
func guard(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = status.Errorf(codes.Internal, "cannot answer %s: %v", info.FullMethod, r)
		}
	}()
	return handler(ctx, req)
}

// GetInfo tells the kubelet which socket to call, and what is served there.
func (s *service) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DRAPlugin, Name: s.driver, Endpoint: s.endpoint,
		SupportedVersions: []string{
			drapb.DRAPluginService, drapbbeta.DRAPluginService,
			drahealth.DRAResourceHealthService, drahealthalpha.DRAResourceHealthService,
		},
	}, nil
}

// NotifyRegistrationStatus takes the kubelet's verdict.
func (s *service) NotifyRegistrationStatus(_ context.Context,
	v *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	text := ""
	if !v.GetPluginRegistered() {
		text = "no reason given"
		if v.GetError() != "" {
			text = v.GetError()
		}
	}
	select {
	case s.verdicts <- text:
	default: // as many wait already
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// TagConn, HandleConn, TagRPC and HandleRPC count the kubelet's connections.
func (s *service) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is called when a connection begins and ends.
func (s *service) HandleConn(_ context.Context, e stats.ConnStats) {
	switch e.(type) {
	case *stats.ConnBegin:
		s.connections.Add(1)
	case *stats.ConnEnd:
		s.connections.Add(-1)
	}
	select {
	case s.told <- struct{}{}:
	default:
	}
}

// TagRPC is of no interest.
func (s *service) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC is of no interest.
func (s *service) HandleRPC(context.Context, stats.RPCStats) {}

// removeLeftovers removes the sockets of a killed predecessor, on which nobody listens any more: as long as the one
// that is found is there, the kubelet believes in it.
func (p *Plugin) removeLeftovers(now time.Time) {
	for dir, form := range map[string]string{
		p.cfg.registry():          `^acceld-` + regexp.QuoteMeta(p.cfg.Definition.Kind) + `-[0-9a-f]{8}-reg\.sock$`,
		p.cfg.directory(p.driver): `^dra-[0-9a-f]{8}\.sock$`,
	} {
		entries, err := p.cfg.Host.ReadDir(dir)
		if err != nil {
			continue // listening says what is wrong with the directory
		}
		ours := regexp.MustCompile(form)
		for _, e := range entries {
			info, err := e.Info()
			// Between bind and listen nobody answers on a socket that is about to be used.
			if err != nil || info.Mode().Type() != fs.ModeSocket || !ours.MatchString(e.Name()) ||
				now.Sub(info.ModTime()) < time.Second {
				continue
			}
			name := path.Join(dir, e.Name())
			if socket, err := p.cfg.Host.Path(name); err == nil && deserted(socket) {
				_ = p.cfg.Host.Remove(name) // tried again at the next registration
			}
		}
	}
}

// deserted reports whether nobody listens on a socket.
func deserted(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		_ = c.Close() // a live predecessor keeps its socket
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
