package deviceplugin

import (
	"net"
)

// Connections keeps connections to the kubelet open while one process of the agent is replaced by the next. The
// kubelet counts no device of a plugin whose connection has ended, and permanently fails pods that it admits at that
// moment, including running ones (kubernetes/kubernetes#128043, #118559).
type Connections interface {
	// Keep returns the connection to use instead of c. Closing it ends c, unless the process is leaving.
	Keep(name string, c *net.UnixConn) net.Conn
	// End ends the previous process's connections, once new ones have replaced them.
	End(name string)
	// Leaving reports whether this process is ending and leaves its connections to the next one.
	Leaving() bool
}

// ending keeps no connections: they end with the process.
type ending struct{}

func (ending) Keep(_ string, c *net.UnixConn) net.Conn { return c }
func (ending) End(string)                              {}
func (ending) Leaving() bool                           { return false }

// keeping is a listener whose connections are kept under a name.
type keeping struct {
	*net.UnixListener
	connections Connections
	name        string
}

// Accept waits for the next connection.
func (k keeping) Accept() (net.Conn, error) {
	c, err := k.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return k.connections.Keep(k.name, c), nil
}
