package host

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// AsUser makes cmd run as a user in the machine's /etc/passwd, given by name or number, with that user's groups.
func (p Programs) AsUser(cmd *exec.Cmd, user string) error {
	text, err := p.h.ReadFile("/etc/passwd")
	if err != nil {
		return fmt.Errorf("cannot find user %q: %w", user, err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		f := strings.Split(line, ":") // passwd(5)
		if len(f) < 7 || f[0] != user && f[2] != user {
			continue
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil {
			break
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: p.groupsOf(f[0])}
		cmd.Env = append(cmd.Env, "HOME="+f[5], "USER="+f[0], "LOGNAME="+f[0])
		return nil
	}
	return fmt.Errorf("cannot find user %q in /etc/passwd", user)
}

// groupsOf returns the supplementary groups of a user, or none if they cannot be read.
func (p Programs) groupsOf(user string) []uint32 {
	text, err := p.h.ReadFile("/etc/group")
	if err != nil {
		return nil
	}
	var out []uint32
	for line := range strings.SplitSeq(string(text), "\n") {
		f := strings.Split(line, ":") // group(5)
		if len(f) < 4 || !strings.Contains(","+f[3]+",", ","+user+",") {
			continue
		}
		if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil {
			out = append(out, uint32(gid))
		}
	}
	return out
}

// AsNumbers makes cmd run as a user and group that need no entry in /etc/passwd, with supplementary groups, and
// without privileges. It needs root.
func AsNumbers(cmd *exec.Cmd, id int, groups []uint32) {
	cmd.SysProcAttr.Credential = userOnly(id)
	cmd.SysProcAttr.Credential.Groups = groups
}

func userOnly(id int) *syscall.Credential {
	return &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
}
