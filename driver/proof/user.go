package proof

import (
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// User ids that nobody has: systemd's documentation of user ids leaves 1879048192 to 2147483647 unused.
const (
	firstUser = 1879048192
	users     = 1 << 27
)

// unprivileged makes cmd run as a user of its own, with the groups that the device nodes need. If that is not enough to
// open them, it stays root; the program itself gives up all capabilities, so that even then it cannot create device
// nodes.
func (p *Prover) unprivileged(cmd *exec.Cmd, d Device) {
	if os.Geteuid() != 0 {
		return
	}
	groups, ok := p.groups(slices.Concat(d.Nodes, d.Shared))
	if !ok {
		return
	}
	sum := fnv.New32a()
	_, _ = io.WriteString(sum, d.ID) // a hash never fails
	host.AsNumbers(cmd, firstUser+int(sum.Sum32()%users), groups)
}

// groups returns the groups with which a user can open the nodes for reading and writing; false if no groups are
// enough.
func (p *Prover) groups(nodes []accel.DeviceNode) (groups []uint32, ok bool) {
	const others, group, write, readOthers = 0o006, 0o060, 0o222, 0o004
	for _, n := range nodes {
		st, err := p.o.Host.Stat(n.Path)
		if err != nil {
			continue // an optional one
		}
		owner, known := st.Sys().(*syscall.Stat_t)
		switch mode := st.Mode().Perm(); {
		case mode&others == others:
		case mode&write == 0 && mode&readOthers != 0: // nobody opens it for writing
		case mode&group == group && known && owner.Gid != 0:
			groups = append(groups, owner.Gid)
		default:
			return nil, false
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), true
}
