package bed

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/test/vm/cluster"
)

// Forward listens on a port of the host's loopback for what runs natively beside the guests, such as the scheduler, and
// carries each connection to where a port of a Service leads at that moment, by its EndpointSlices, as a service proxy
// would. It ends with end.
func (n *Node) Forward(namespace, service, port string) (address string, end func(), err error) {
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("cannot forward connections: %w", err)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go n.forward(client, namespace, service, port)
		}
	}()
	return l.Addr().String(), func() { l.Close() }, nil
}

// forward carries one connection. Whoever leads nowhere hangs up, as a refused connection does.
func (n *Node) forward(client net.Conn, namespace, service, port string) {
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	to, err := n.endpoint(ctx, namespace, service, port)
	if err != nil {
		return
	}
	server, err := n.dialCluster(ctx, to)
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{}, 2)
	go func() { io.Copy(server, client); done <- struct{}{} }()
	go func() { io.Copy(client, server); done <- struct{}{} }()
	<-done
}

// endpoint is the address of a ready endpoint.
func (n *Node) endpoint(ctx context.Context, namespace, service, port string) (string, error) {
	var list discoveryv1.EndpointSliceList
	err := n.Client().List(ctx, cluster.Resource{
		Group: discoveryv1.SchemeGroupVersion, Name: "endpointslices", Namespace: namespace,
	}, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service}, &list)
	if err != nil {
		return "", fmt.Errorf("cannot find where the Service %q leads: %w", service, err)
	}
	for _, s := range list.Items {
		for _, p := range s.Ports {
			for _, e := range s.Endpoints {
				ready := e.Conditions.Ready == nil || *e.Conditions.Ready // nil means ready, says the API
				if p.Name != nil && *p.Name == port && p.Port != nil && ready && len(e.Addresses) > 0 {
					return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))), nil
				}
			}
		}
	}
	return "", fmt.Errorf("the Service %q leads nowhere now", service)
}
