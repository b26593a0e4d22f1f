package cluster

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// Dialer connects to an address of the node's network.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// serveEgress carries the API server's connections to kubelets and pods, whose addresses exist only inside the guest,
// by the API server's own means for that: an egress selector with an HTTP CONNECT proxy on a unix socket. Loopback
// addresses are the host's, so that a webhook may run beside the control plane.
func serveEgress(l net.Listener, dial Dialer) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go connect(conn, dial)
	}
}

func connect(client net.Conn, dial Dialer) {
	defer client.Close()
	in := bufio.NewReader(client)
	request, err := http.ReadRequest(in)
	if err != nil || request.Method != http.MethodConnect {
		io.WriteString(client, "HTTP/1.1 405 Method Not Allowed\r\n\r\n")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if host, _, err := net.SplitHostPort(request.Host); err == nil && (host == "localhost" ||
		net.ParseIP(host).IsLoopback()) {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	server, err := dial(ctx, request.Host)
	if err != nil {
		io.WriteString(client, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer server.Close()
	io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	done := make(chan struct{}, 2)
	go func() { io.Copy(server, in); done <- struct{}{} }()
	go func() { io.Copy(client, server); done <- struct{}{} }()
	<-done
}
