package systemd

import (
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier tells the service manager what the service does (sd_notify(3)). Its methods may be called concurrently and
// never fail: the first message of a row that cannot be told is logged, and without a notify socket they do nothing.
type Notifier struct {
	log  *slog.Logger
	send func(message string) error

	mu     sync.Mutex
	status string
	failed bool
}

// NewNotifier returns a Notifier of the socket in the environment, NOTIFY_SOCKET.
func NewNotifier(log *slog.Logger) *Notifier {
	return &Notifier{log: log, send: func(message string) error {
		_, err := daemon.SdNotify(false, message)
		return err
	}}
}

// Supervised reports whether the service manager of the machine, process 1, has started this process as a service that
// notifies it.
func Supervised() bool { return os.Getenv("NOTIFY_SOCKET") != "" && os.Getppid() == 1 }

// Ready says that the service serves; units that are ordered after it may start.
func (n *Notifier) Ready() { n.tell(daemon.SdNotifyReady) }

// Stopping says that the service is on its way out.
func (n *Notifier) Stopping() { n.tell(daemon.SdNotifyStopping) }

// Status sets the sentence that `systemctl status` shows; the same sentence again is not sent.
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

// tell sends a message. A failure is logged when the message before went through.
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
