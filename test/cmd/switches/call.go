package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// callTimeout is how long the kubelet waits for a driver's answer (pkg/kubelet/cm/dra/plugin, Kubernetes 1.34).
const callTimeout = 45 * time.Second

var errNoSocket = errors.New("the driver has no socket")

// repeat makes a call until it succeeds, as the kubelet does. The driver may be killed meanwhile, or right after it.
func (s *stage) repeat(ctx context.Context, random *rand.Rand,
	call func(context.Context, drapb.DRAPluginClient) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	if s.kill != "" && random.IntN(20) == 0 {
		after := time.Duration(random.IntN(1500)) * time.Millisecond
		time.AfterFunc(after, func() { // which may be while the container runs
			_ = exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", s.kill).Run() // the driver may not run
			s.mu.Lock()
			defer s.mu.Unlock()
			s.kills++
		})
	}
	for {
		err := s.once(ctx, call)
		if err == nil {
			return nil
		}
		s.mu.Lock()
		s.tries++
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// once makes a call to the driver's newest socket: each start of the driver has one of its own.
func (s *stage) once(ctx context.Context, call func(context.Context, drapb.DRAPluginClient) error) error {
	sockets, err := filepath.Glob("/var/lib/kubelet/plugins/" + s.driver + "/dra-*.sock")
	if err != nil || len(sockets) == 0 {
		return errors.Join(errNoSocket, err)
	}
	made := func(socket string) time.Time {
		info, err := os.Stat(socket)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	newest := slices.MaxFunc(sockets, func(a, b string) int { return made(a).Compare(made(b)) })
	conn, err := grpc.NewClient("unix:"+newest, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // everything has been answered
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx, drapb.NewDRAPluginClient(conn))
}
