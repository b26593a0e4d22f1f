package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/net/http2"

	"github.com/acceld/acceld/guard"
)

// listStream is the HTTP/2 stream of the kubelet's ListAndWatch: its second call on a connection, after
// GetDevicePluginOptions (PluginConnected in pkg/kubelet/cm/devicemanager/manager.go, Kubernetes 1.37).
const listStream = 3

// inherit takes over the calls on the previous process's connections until these end. A pod that the kubelet is
// admitting stays with the plugin that it began with, and a call that fails refuses the pod permanently. But no process
// can answer on a connection whose beginning it does not know. So inherit listens where the previous process did, and
// tells the kubelet to make its calls there, including those that nobody has answered (GOAWAY, RFC 9113, section 6.8).
// The kubelet's client repeats these, as gRPC's proposal A6 has it under "Transparent Retries". The stream of the list
// stays open.
//
// It is for a process that has registered: all other pods are with it, so a kill from then on costs only these.
func (s *service) inherit() {
	if s.cfg.Inherited == nil {
		return
	}
	for _, c := range s.cfg.Inherited(s.cfg.Resource) {
		l, err := listenAgain(c.LocalAddr().String(), s.cfg.Dir, s.cfg.Definition.Kind)
		if err == nil {
			s.inherited = append(s.inherited, l)
			guard.Go(func() { _ = s.server.Serve(l) }) // ends with disinherit or stop
			err = http2.NewFramer(c, nil).WriteGoAway(listStream, http2.ErrCodeNo, nil)
		}
		if err != nil {
			s.cfg.Log.Warn("calls to the previous process are not answered", "error", err)
		}
	}
}

// disinherit stops listening where the previous process did.
func (s *service) disinherit() {
	for _, l := range s.inherited {
		_ = l.Close() // unlinks the socket; nobody could act on an error
	}
}

// listenAgain listens at the path of a socket of an earlier process, which may have left it behind.
func listenAgain(path, dir, kind string) (net.Listener, error) {
	if filepath.Dir(path) != filepath.Clean(dir) || !socketName(kind).MatchString(filepath.Base(path)) {
		return nil, fmt.Errorf("cannot listen on %q: it is no socket of this plugin", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot remove the socket %q: %w", path, err)
	}
	return listen(path)
}

// listen listens on a socket that only root may connect to.
func listen(path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %q: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close() // the error of Chmod is the one that matters
		return nil, fmt.Errorf("cannot protect %q: %w", path, err)
	}
	return l, nil
}

// socketName matches the names of a kind's sockets.
func socketName(kind string) *regexp.Regexp {
	return regexp.MustCompile(`^acceld-` + regexp.QuoteMeta(kind) + `-[0-9a-f]{8}\.sock$`)
}
