package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// agentFile returns the file that the agent of the host locks.
func agentFile() string { return path.Join(Dir, "agent.lock") }

// NextFile returns the file that an agent locks while it follows another one. [host.Host.Watch] reports it when an
// agent begins to wait.
func NextFile() string { return path.Join(Dir, "agent.next") }

// Agent takes the lock that makes an agent the only one on its host. It ends with release or with the process. An
// agent of the same group may follow it, see [Follow]; none if group is empty.
func Agent(h *host.Host, group string) (release func(), problem *accel.Problem) {
	err := h.MkdirAll(Dir, 0o755)
	if err == nil {
		release, err = h.Locks().Try(agentFile(), text(h, owner{Group: group}))
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, alreadyRuns(h)
	}
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot take the agent's lock")
	}
	return release, nil
}

// alreadyRuns is the problem that another agent holds the lock.
func alreadyRuns(h *host.Host) *accel.Problem {
	return accel.Problemf(accel.AlreadyRunning, "another acceld holds %q: %s", agentFile(), holderOf(h, agentFile()))
}

// Follow takes the agent's lock from an agent of the same group, which it asks to end: that agent releases the lock,
// and continues to answer the kubelet until done is called or this process ends. Only one agent waits at a time.
func Follow(ctx context.Context, h *host.Host, group string) (release, done func(), problem *accel.Problem) {
	if o := ownerOf(h, agentFile()); group == "" || o.Group != group {
		return nil, nil, alreadyRuns(h)
	}
	done, err := h.Locks().Take(ctx, NextFile(), text(h, owner{Group: group}))
	if err != nil {
		return nil, nil, accel.ProblemOf(err, "cannot follow another agent")
	}
	if err = h.Locks().Signal(NextFile()); err == nil {
		release, problem = Resume(ctx, h, group)
	} else {
		problem = accel.ProblemOf(err, "cannot ask another agent to end")
	}
	if problem != nil {
		done()
	}
	return release, done, problem
}

// Resume takes the agent's lock as soon as no other agent has it.
func Resume(ctx context.Context, h *host.Host, group string) (release func(), problem *accel.Problem) {
	release, err := h.Locks().Take(ctx, agentFile(), text(h, owner{Group: group}))
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot take the agent's lock")
	}
	return release, nil
}

// Followed reports whether an agent of the group is in [Follow], or has returned from it and has not called done.
func Followed(h *host.Host, group string) bool {
	return group != "" && h.Locks().Held(NextFile()) && ownerOf(h, NextFile()).Group == group
}

// AwaitFollower returns when the agent that follows has called done or has ended, and at the latest with ctx.
func AwaitFollower(ctx context.Context, h *host.Host) {
	if release, err := h.Locks().Take(ctx, NextFile(), ""); err == nil {
		release()
	}
}

// Ours returns nil if the agent of the host is in the container of this process, which is told by the control group,
// and the agent that it follows, if any, is no longer needed.
func Ours(h *host.Host) *accel.Problem {
	if !h.Locks().Held(agentFile()) {
		return accel.Problemf(accel.ProbeUnanswered, "no agent runs on this host")
	}
	pid := ownerOf(h, agentFile()).PID
	own, err := h.ReadFile("/proc/self/cgroup")
	var its []byte
	if err == nil {
		its, err = h.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	}
	if err != nil {
		return accel.ProblemOf(err, "cannot tell whether the agent of this host is in this container")
	}
	if !bytes.Equal(own, its) {
		return accel.Problemf(accel.AlreadyRunning, "the agent of this host is another one: process %d", pid)
	}
	if h.Locks().Held(NextFile()) && ownerOf(h, NextFile()).PID == pid {
		return accel.Problemf(accel.AlreadyRunning, "the agent that process %d follows still answers the kubelet", pid)
	}
	return nil
}
