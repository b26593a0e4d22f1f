package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/handover"
	"github.com/acceld/acceld/runtime/gate"
)

// maxHooks is how many hooks may wait for devices at a time; the others wait until they are accepted.
const maxHooks = 256

// newHandover returns the keeper of who has had which device.
func (a *Agent) newHandover() *handover.Keeper {
	cleaner := driver.NewCleaner(a.driver)
	return handover.New(handover.Options{
		Host: a.Host, File: path.Join(path.Dir(gate.Socket), "handover.json"), Log: a.Log, Machine: a.machine,
		Users: func(def *accel.Definition, x accel.Accelerator) []accel.Holder {
			return a.users.others(cleaner.Users(def, x))
		},
		Clean: func(ctx context.Context, def *accel.Definition, x accel.Accelerator) *accel.Problem {
			return cleaner.Clean(ctx, def, a.machine().Facts, x, a.awaitReset(x.ID))
		},
		Claims: func(id string) ([]string, bool) {
			uids, known := a.plugins.claimsOf(id)
			if a.switches != nil && a.switches.lent(id) {
				uids = append(uids, accel.AsideClaim(id))
			}
			return uids, known
		},
		Changed: a.changed,
	})
}

// awaitReset returns a function that waits until a device that is to be reset is withheld.
func (a *Agent) awaitReset(id string) func(context.Context) *accel.Problem {
	return func(ctx context.Context) *accel.Problem {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		for {
			m, next := a.loop.Follow()
			for _, have := range m.Have {
				if slices.ContainsFunc(have.Accelerators, func(x accel.Accelerator) bool {
					return x.ID == id && x.WithheldBy(accel.ByReset)
				}) {
					return nil
				}
			}
			select {
			case <-next:
			case <-ctx.Done():
				return accel.Problemf(accel.ResetFailed, "device %q was not withheld in time", id)
			}
		}
	}
}

// claimsOf returns the claims that are prepared with a device. Known is false while that is not known: an agent that
// has just started has no plugin yet for claims that an earlier one has prepared.
func (p *plugins) claimsOf(id string) (uids []string, known bool) {
	known = true
	for _, def := range p.machine().Want.Kinds {
		known = known && (p.slot(claimsOf(def)) != nil || !p.early(def))
	}
	for _, s := range p.all() {
		if s.claims == nil {
			continue
		}
		_, read := s.claims.Held()
		known = known && read
		for _, h := range s.claims.Known() {
			if h.Device == id && !h.Admin && !slices.Contains(uids, h.ClaimUID) {
				uids = append(uids, h.ClaimUID)
			}
		}
	}
	return uids, known
}

// serveHooks answers the hooks that ask for devices, until ctx ends.
func (a *Agent) serveHooks(ctx context.Context) error {
	l, err := a.hookSocket()
	if err != nil {
		return err
	}
	var group guard.Group
	defer group.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	places := make(chan struct{}, maxHooks)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot accept a hook: %w", err)
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			a.answer(ctx, conn)
		})
	}
}

// answer answers one hook.
func (a *Agent) answer(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(requestTime))
	ask, err := gate.ReadAsk(conn)
	if err != nil {
		a.Log.Debug("hook", "error", err)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	// A hook that has given up, or was killed, needs no device: its end closes the connection.
	ctx, cancel := context.WithTimeout(ctx, gate.MaxHandover*time.Second)
	defer cancel()
	guard.Go(func() {
		defer cancel()
		var b [1]byte
		_, _ = conn.Read(b[:])
	})
	var out gate.Answer
	if problem := a.handover.Admit(ctx, ask.PID, ask.Devices); problem != nil {
		out = gate.Answer{Reason: string(problem.Reason), Message: problem.Message}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(requestTime))
	if err := gate.WriteAnswer(conn, out); err != nil {
		a.Log.Debug("hook", "error", err)
	}
}

// hookSocket creates the socket that hooks ask. Only root may connect to it.
func (a *Agent) hookSocket() (net.Listener, error) {
	const private = 0o600
	if err := a.Host.MkdirAll(path.Dir(gate.Socket), 0o755); err != nil {
		return nil, err
	}
	socket, err := a.Host.Path(gate.Socket)
	if err != nil {
		return nil, err
	}
	if err := a.Host.Remove(gate.Socket); err != nil { // we hold the agent's lock, so a dead agent left it
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %q: %w", gate.Socket, err)
	}
	return l, os.Chmod(socket, private)
}
