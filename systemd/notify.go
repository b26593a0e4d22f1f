package systemd

import (
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier reports the state of the service to the service manager (sd_notify(3)). Its methods may be called
// concurrently and return no errors: of several failures in a row only the first is logged. Without a notify socket
// they do nothing.
type Notifier struct {
	log  *slog.Logger
	send func(message string) error

	mu     sync.Mutex
	status string
	failed bool
}

// NewNotifier returns a Notifier for the socket in the environment, NOTIFY_SOCKET.
func NewNotifier(log *slog.Logger) *Notifier {
	return &Notifier{log: log, send: func(message string) error {
		_, err := daemon.SdNotify(false, message)
		return err
	}}
}

// Supervised reports whether the machine's service manager, process 1, started this process as a service with a
// notify socket.
func Supervised() bool { return os.Getenv("NOTIFY_SOCKET") != "" && os.Getppid() == 1 }

// Ready says that the service is up; units ordered after it may start.
func (n *Notifier) Ready() { n.tell(daemon.SdNotifyReady) }

// Stopping says that the service is shutting down.
func (n *Notifier) Stopping() { n.tell(daemon.SdNotifyStopping) }

// Status sets the sentence that `systemctl status` shows. An unchanged sentence is not sent again.
func (n *Notifier) Status(sentence string) {
	sentence = strings.Join(strings.Fields(sentence), " ") // a line feed would start another assignment
	n.mu.Lock()
	same := sentence == n.status
	n.status = sentence
	n.mu.Unlock()
	if !same {
		n.tell("STATUS=" + sentence)
	}
}

// tell sends a message. It logs a failure unless the previous message failed, too.
func (n *Notifier) tell(message string) {
	err := n.send(message)
	n.mu.Lock()
	before := n.failed
	n.failed = err != nil
	n.mu.Unlock()
	if err != nil && !before {
		n.log.Warn("cannot notify the service manager", "message", message, "err", err)
	}
}
