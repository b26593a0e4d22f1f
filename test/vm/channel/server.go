package channel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Serve accepts connections that show the allowed key, for ever.
func Serve(l net.Listener, host ssh.Signer, allowed ssh.PublicKey) error {
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if string(key.Marshal()) != string(allowed.Marshal()) {
				return nil, errors.New("unknown key")
			}
			return nil, nil
		},
	}
	config.AddHostKey(host)
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("cannot accept connections: %w", err)
		}
		go serveConn(conn, config)
	}
}

func serveConn(conn net.Conn, config *ssh.ServerConfig) {
	defer conn.Close()
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		switch c.ChannelType() {
		case "session":
			go serveSession(c)
		case "direct-tcpip":
			go serveDial(c)
		default:
			c.Reject(ssh.UnknownChannelType, "only session and direct-tcpip")
		}
	}
}

func serveSession(c ssh.NewChannel) {
	ch, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	for r := range requests {
		var want named
		ok := r.Type == "subsystem" && ssh.Unmarshal(r.Payload, &want) == nil && want.Name == subsystem
		r.Reply(ok, nil)
		if ok {
			status := serveRequest(ch, requests)
			ch.SendRequest("exit-status", false, ssh.Marshal(exitStatus{uint32(status)}))
			return
		}
	}
}

func serveRequest(ch ssh.Channel, requests <-chan *ssh.Request) int {
	request, err := readRequest(ch)
	if err == nil {
		switch {
		case request.Put != "":
			err = writeFile(request, ch)
		case request.Get != "":
			err = readFile(request.Get, ch)
		case len(request.Argv) > 0:
			return runCommand(request, ch, requests)
		default:
			err = errors.New("cannot serve an empty request")
		}
	}
	if err != nil {
		fmt.Fprintln(ch.Stderr(), err)
		return 1
	}
	return 0
}

// runCommand runs a command in its own process group and ends the group when the client goes away.
func runCommand(request Request, ch ssh.Channel, requests <-chan *ssh.Request) int {
	cmd := exec.Command(request.Argv[0], request.Argv[1:]...)
	cmd.Env = append(os.Environ(), request.Env...)
	cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A process left in the background keeps the pipes open: do not wait for it.
	cmd.WaitDelay = 300 * time.Millisecond
	// Not cmd.Stdin: Wait would wait for the end of the input even after the command ended.
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(ch.Stderr(), "cannot start %q: %v\n", request.Argv[0], err)
		return 127
	}
	go func() {
		io.Copy(stdin, ch)
		stdin.Close()
	}()
	ended := make(chan struct{})
	go forwardSignals(cmd.Process.Pid, requests, ended)
	err = cmd.Wait()
	close(ended)
	if err != nil && cmd.ProcessState == nil {
		fmt.Fprintf(ch.Stderr(), "cannot wait for %q: %v\n", request.Argv[0], err)
		return 126
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

func forwardSignals(pgid int, requests <-chan *ssh.Request, ended <-chan struct{}) {
	numbers := map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL,
		"QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	}
	for {
		select {
		case <-ended:
			return
		case r, open := <-requests:
			if !open {
				syscall.Kill(-pgid, syscall.SIGKILL)
				return
			}
			var sig signalName
			if r.Type == "signal" && ssh.Unmarshal(r.Payload, &sig) == nil && numbers[sig.Name] != 0 {
				syscall.Kill(-pgid, numbers[sig.Name])
			}
			if r.WantReply {
				r.Reply(true, nil)
			}
		}
	}
}

func writeFile(request Request, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(request.Put), 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of %q: %w", request.Put, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(request.Put), ".bed-*")
	if err != nil {
		return fmt.Errorf("cannot write %q: %w", request.Put, err)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if _, err := io.Copy(tmp, content); err != nil {
		return fmt.Errorf("cannot write %q: %w", request.Put, err)
	}
	if err := tmp.Chmod(request.Mode); err != nil {
		return fmt.Errorf("cannot set the mode of %q: %w", request.Put, err)
	}
	// Closed before the rename: a program that is still open for writing cannot be executed (ETXTBSY).
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("cannot write %q: %w", request.Put, err)
	}
	if err := os.Rename(tmp.Name(), request.Put); err != nil {
		return fmt.Errorf("cannot put %q in place: %w", request.Put, err)
	}
	return nil
}

func readFile(path string, to io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(to, f); err != nil {
		return fmt.Errorf("cannot read %q: %w", path, err)
	}
	return nil
}

func serveDial(c ssh.NewChannel) {
	var to directTCP
	if err := ssh.Unmarshal(c.ExtraData(), &to); err != nil {
		c.Reject(ssh.ConnectionFailed, "cannot decode the address")
		return
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))), 10*time.Second)
	if err != nil {
		c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer conn.Close()
	ch, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go ssh.DiscardRequests(requests)
	go func() {
		io.Copy(conn, ch)
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.CloseWrite()
		}
	}()
	io.Copy(ch, conn)
}
