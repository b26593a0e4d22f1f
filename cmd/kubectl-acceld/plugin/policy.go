package plugin

import (
	"context"
	"fmt"
	"io"
	"strconv"
)

// policies lists the policies, or shows one.
func policies(ctx context.Context, r reader, out io.Writer, args []string) error {
	all, err := r.policies(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"POLICY", "NODES", "READY", "UPGRADING", "WAITING", "FAILED", "STATE"}}
	for _, p := range all {
		if len(args) > 0 {
			if p.Name == args[0] {
				showPolicy(out, p)
				return nil
			}
			continue
		}
		state := "unknown"
		for _, c := range p.Status.Conditions {
			if c.Type == "Ready" || c.Type == "Accepted" && c.Status == "False" {
				state = c.Reason
				if c.Type == "Accepted" {
					break
				}
			}
		}
		n := p.Status.Nodes
		row := []string{p.Name}
		for _, count := range []int{n.Matched, n.Ready, n.Upgrading, n.Waiting, n.Failed} {
			row = append(row, strconv.Itoa(count))
		}
		rows = append(rows, append(row, state))
	}
	switch {
	case len(args) > 0:
		return fmt.Errorf("there is no policy %q", args[0])
	case len(all) == 0:
		fmt.Fprintln(out, "there are no policies: each node follows its own file")
	default:
		table(out, rows)
	}
	return nil
}

// showPolicy prints what a policy's status says.
func showPolicy(out io.Writer, p rollout) {
	n := p.Status.Nodes
	fmt.Fprintf(out, "%s: %d nodes, %d ready, %d upgrading, %d waiting, %d failed\n", clean(p.Name), n.Matched, n.Ready,
		n.Upgrading, n.Waiting, n.Failed)
	for _, c := range p.Status.Conditions {
		fmt.Fprintf(out, "%s is %s (%s): %s\n", clean(c.Type), clean(c.Status), clean(c.Reason), clean(c.Message))
	}
	for _, b := range p.Status.Blocked {
		fmt.Fprintf(out, "%d blocked by %s, such as: %s\n", b.Count, clean(b.Reason), clean(b.Example))
	}
}
