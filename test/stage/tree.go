package stage

import (
	"context"
	"strings"

	"github.com/acceld/acceld/test/tree"
	"github.com/acceld/acceld/test/vm/bed"
)

// files prints a host's files: with their content where configuration is, and with their size and time elsewhere,
// because an emulated processor hashes a distribution for minutes. What changes by itself is left out.
const files = `tree -mtime /etc /opt /root /usr/local /usr/share/containers /usr/lib/systemd /run/acceld /run/cdi /run/containers/oci
find /usr /var -xdev \( -path /var/log -o -path /var/tmp -o -path /var/cache -o -path /var/lib/systemd -o -path /var/lib/containerd -o -path /var/lib/containers -o -path /var/lib/kubelet -o -path /var/lib/cni -o -path /var/lib/dkms \) -prune \
	-o -type d -printf '%p %y %m %U:%G\n' -o -printf '%p %y %m %U:%G %s %T@ %l\n' | sort`

// Files is a snapshot of the guest's files, to be compared with [tree.Diff]. The guest needs the program tree.
func Files(ctx context.Context, g *bed.Guest) (string, error) {
	res, err := g.Sh(ctx, files)
	return res.Stdout, Must(res, err)
}

// Unlike says how two snapshots differ, but for lines that have one of the words.
func Unlike(before, after string, but ...string) string {
	var lines []string
next:
	for line := range strings.Lines(tree.Diff(before, after)) {
		for _, word := range but {
			if strings.Contains(line, word) {
				continue next
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}
