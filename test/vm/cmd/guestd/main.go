// Command guestd is the test bed's hand inside a guest: it serves package channel on the management network. It may be
// used only there, behind QEMU's user-mode network, because whoever holds the key is root.
package main

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/crypto/ssh"

	"github.com/acceld/acceld/test/vm/channel"
)

// Where the seed puts the keys, and where the host's forwarded port leads.
const (
	hostKeyFile    = "/etc/bed/host_key"
	allowedKeyFile = "/etc/bed/authorized_keys"
	address        = ":7022"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "guestd:", err)
		os.Exit(1)
	}
}

func serve() error {
	private, err := os.ReadFile(hostKeyFile)
	if err != nil {
		return fmt.Errorf("cannot read the host key: %w", err)
	}
	host, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return fmt.Errorf("cannot parse the host key: %w", err)
	}
	public, err := os.ReadFile(allowedKeyFile)
	if err != nil {
		return fmt.Errorf("cannot read the allowed key: %w", err)
	}
	allowed, _, _, _, err := ssh.ParseAuthorizedKey(public)
	if err != nil {
		return fmt.Errorf("cannot parse the allowed key: %w", err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	return channel.Serve(l, host, allowed)
}
