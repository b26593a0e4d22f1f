// Command plainplugin is a device plugin as the examples of Kubernetes have it: it offers the device nodes that it
// found when it started, as example.com/plain, and never looks at them again. It is what acceld is compared with.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource = "example.com/plain"
	nodes    = "/dev/edu[0-9]*"
	socket   = "plain.sock"
)

// plugin offers device nodes.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	nodes []string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "plainplugin:", err)
		os.Exit(1)
	}
}

// run serves the kubelet until that fails.
func run() error {
	found, err := filepath.Glob(nodes)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join(pluginapi.DevicePluginPath, socket))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, &plugin{nodes: found})
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(l) }()
	if err := register(); err != nil {
		return err
	}
	fmt.Printf("%s: %d devices\n", resource, len(found))
	return <-failed
}

// register tells the kubelet of the plugin.
func register() error {
	conn, err := grpc.NewClient("unix:"+pluginapi.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: socket, ResourceName: resource,
	})
	return err
}

// GetDevicePluginOptions asks for no further calls.
func (*plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch says once that every node is a healthy device.
func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	var all []*pluginapi.Device
	for _, n := range p.nodes {
		all = append(all, &pluginapi.Device{ID: filepath.Base(n), Health: pluginapi.Healthy})
	}
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: all}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate gives a container the nodes that the kubelet chose.
func (*plugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	out := &pluginapi.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		answer := &pluginapi.ContainerAllocateResponse{}
		for _, id := range c.DevicesIds {
			path := "/dev/" + id
			answer.Devices = append(answer.Devices, &pluginapi.DeviceSpec{
				ContainerPath: path, HostPath: path, Permissions: "rw",
			})
		}
		out.ContainerResponses = append(out.ContainerResponses, answer)
	}
	return out, nil
}
