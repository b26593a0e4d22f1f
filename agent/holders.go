package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/probe"
)

// users finds who uses devices. The host shows processes; the kubelet and the DRA plugins know pods.
type users struct {
	host     *host.Host
	driver   *driver.Driver
	programs *probe.Supervisor
	plugins  *plugins
	machine  func() accel.Machine
}

// kubeletAnswers is how long the kubelet may take to report who has devices.
const kubeletAnswers = 5 * time.Second

// held returns which containers hold which device of a kind through the device plugin, as the kubelet last reported:
// each container once, sorted by name. It returns a problem if the kubelet does not answer now.
func (u *users) held(ctx context.Context, def *accel.Definition) (map[string][]deviceplugin.PodRef, *accel.Problem) {
	if u.plugins.slot(devicesOf(def)) == nil && !u.machine().Want.Kubernetes {
		return nil, nil // nobody has given out a device
	}
	ctx, cancel := context.WithTimeout(ctx, kubeletAnswers)
	defer cancel()
	refs, err := u.plugins.asker(def).Holders(ctx)
	if err == nil {
		err = u.young()
	}
	if err == nil || !u.machine().Want.Kubernetes { // without an error, or the kubelet and its pods have left the host
		return byDevice(refs), nil
	}
	return byDevice(refs), accel.Problemf(accel.ProbeUnanswered,
		"the kubelet does not say who has devices of %q: %v", def.Kind, err)
}

// young says why the kubelet may not know all its pods yet; nil if it must. The device plugin notices a restart of the
// kubelet only after the first answer; a kubelet that started shortly before the agent is young, too. It creates its
// socket at its start.
func (u *users) young() error {
	socket, err := u.host.Stat(path.Join(u.plugins.kubeletRoot(), "pod-resources/kubelet.sock"))
	if err != nil {
		return fmt.Errorf("it is not known since when it runs: %w", err)
	}
	age := time.Since(socket.ModTime())
	if age < 0 {
		return errors.New("it is not known since when it runs: the time of its socket is in the future")
	}
	if age < deviceplugin.YoungKubelet {
		return fmt.Errorf("it has started %s ago and may not know all its pods yet", age.Round(time.Second))
	}
	return nil
}

// claimed returns who has devices of a kind by claims. It returns a problem while that is not known yet.
func (u *users) claimed(ctx context.Context, def *accel.Definition) ([]dra.Holder, *accel.Problem) {
	s := u.plugins.slot(claimsOf(def))
	if s == nil || s.stopped() && !u.plugins.early(def) { // the last claim has been unprepared
		return nil, nil
	}
	if _, known := s.claims.Held(); !known {
		return nil, accel.Problemf(accel.ProbeUnanswered, "it is not known yet which claims have devices of %q",
			def.Kind)
	}
	holders, _ := s.claims.Holders(ctx)
	return holders, nil
}

// byDevice groups the holders by device: replicas of a shared device count as that device.
func byDevice(refs map[string]deviceplugin.PodRef) map[string][]deviceplugin.PodRef {
	out := map[string][]deviceplugin.PodRef{}
	for id, r := range refs {
		of := deviceplugin.DeviceOf(id)
		out[of] = append(out[of], r)
	}
	for id, all := range out {
		slices.SortFunc(all, func(a, b deviceplugin.PodRef) int {
			return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod),
				strings.Compare(a.UID, b.UID), strings.Compare(a.Container, b.Container))
		})
		out[id] = slices.Compact(all)
	}
	return out
}

// others removes acceld's own processes from all.
func (u *users) others(all []accel.Holder) []accel.Holder {
	return slices.DeleteFunc(all, func(h accel.Holder) bool { return h.PID == os.Getpid() || u.programs.Owns(h.PID) })
}

// of returns who uses a kind's driver: processes and modules as the host shows them, with the names of their pods,
// and pods that were given a device but have no process on it (yet). It returns a problem if there may be more such
// pods.
func (u *users) of(
	ctx context.Context, def *accel.Definition, accs []accel.Accelerator,
) ([]accel.Holder, *accel.Problem) {
	holders := u.others(u.driver.Holders(def, accs))
	held, silent := u.held(ctx, def)
	claims, unread := u.claimed(ctx, def)
	all, problem := NameClaimants(nameHolders(holders, held, accs), claims), cmp.Or(silent, unread)
	more, unknown := u.onFunctions(ctx, accs)
	return append(all, more...), cmp.Or(problem, unknown)
}

// onFunctions returns the pods that were given a virtual function of one of the devices as a device of another kind:
// the functions vanish with the driver of the devices. It returns a problem if there may be more.
func (u *users) onFunctions(ctx context.Context, accs []accel.Accelerator) ([]accel.Holder, *accel.Problem) {
	var ids []string
	for _, a := range accs {
		ids = append(ids, driver.NewFunctions(u.driver).Of(a.ID)...)
	}
	var out []accel.Holder
	var problem *accel.Problem
	for _, f := range functionDevices(u.machine(), ids) {
		held, silent := u.held(ctx, f.def)
		maps.DeleteFunc(held, func(id string, _ []deviceplugin.PodRef) bool { return id != f.device.ID })
		claims, unread := u.claimed(ctx, f.def)
		claims = slices.DeleteFunc(slices.Clone(claims), func(h dra.Holder) bool { return h.Device != f.device.ID })
		out = append(out, NameClaimants(nameHolders(nil, held, []accel.Accelerator{f.device}), claims)...)
		problem = cmp.Or(problem, silent, unread)
	}
	return out, problem
}

// podsOn names the pods that were given a device or a part of it, or have a process on it. If that is unknown, it
// names the source that did not answer instead.
func (u *users) podsOn(ctx context.Context, def *accel.Definition, x accel.Accelerator) []string {
	ids, nodes := map[string]bool{x.ID: true}, slices.Clone(x.Nodes)
	for _, p := range x.Partitions {
		ids[p.ID] = true
		nodes = append(nodes, p.Nodes...)
	}
	var names []string
	for _, h := range u.host.Processes().Holders(nodes) {
		if h.Pod != "" || h.Container != "" {
			names = append(names, h.String())
		}
	}
	claims := u.plugins.slot(claimsOf(def))
	if u.machine().Want.Kubernetes && claims == nil && u.plugins.slot(devicesOf(def)) == nil {
		names = append(names, "the kubelet, which nobody has asked yet")
	} else {
		held, silent := u.held(ctx, def)
		if silent != nil {
			names = append(names, "the kubelet, which does not answer")
		}
		for id, all := range held {
			for _, r := range all {
				if ids[id] {
					names = append(names, fmt.Sprintf("pod %s", r))
				}
			}
		}
	}
	if claims != nil {
		for _, h := range claims.claims.Known() {
			if ids[h.Device] {
				names = append(names, fmt.Sprintf("claim %s/%s", h.Namespace, h.Claim))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// NameClaimants adds the pods that were given devices by claims to holders. A process of such a pod gets the pod's
// name.
func NameClaimants(holders []accel.Holder, pods []dra.Holder) []accel.Holder {
	seen := map[string]bool{}
	for _, p := range pods {
		key := p.UID + p.Namespace + "/" + p.Pod
		if p.Pod == "" {
			key += " " + p.Claim
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		found := false
		for i, h := range holders {
			if h.PodUID != "" && h.PodUID == p.UID {
				holders[i].Namespace, holders[i].Pod = p.Namespace, p.Pod
				found = true
			}
		}
		switch {
		case found:
		case p.Pod == "":
			holders = append(holders, accel.Holder{Other: "claim " + p.Namespace + "/" + p.Claim, Device: p.Device})
		default:
			holders = append(holders, accel.Holder{Namespace: p.Namespace, Pod: p.Pod, PodUID: p.UID, Device: p.Device})
		}
	}
	return holders
}

// nameHolders adds the pods that were given the devices to holders. A process on an unshared device gets the name of
// the device's pod. On a shared device nobody can tell which pod a process belongs to, so its pods are listed
// separately.
func nameHolders(
	holders []accel.Holder, held map[string][]deviceplugin.PodRef, accs []accel.Accelerator,
) []accel.Holder {
	seen := map[deviceplugin.PodRef]bool{}
	for _, acc := range accel.Flat(accs) {
		refs := held[acc.ID]
		if len(refs) != 1 {
			continue
		}
		for i, h := range holders {
			open := func(n accel.DeviceNode) bool { return n.Path == h.Device }
			if h.PodUID != "" && slices.ContainsFunc(acc.Nodes, open) {
				holders[i].Namespace, holders[i].Pod = refs[0].Namespace, refs[0].Pod
				seen[refs[0]] = true
			}
		}
	}
	for _, id := range sorted(held) {
		for _, ref := range held[id] {
			if !seen[ref] {
				seen[ref] = true
				holders = append(holders, accel.Holder{
					PodUID: ref.UID, Namespace: ref.Namespace, Pod: ref.Pod, Device: id,
				})
			}
		}
	}
	return holders
}

// await waits until one of the processes ends.
func (u *users) await(ctx context.Context, holders []accel.Holder) error {
	var pids []int
	for _, h := range holders {
		if h.PID != 0 {
			pids = append(pids, h.PID)
		}
	}
	return u.host.Processes().AwaitExit(ctx, pids)
}
