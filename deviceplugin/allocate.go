package deviceplugin

import (
	"context"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// DevicesAnnotation is set on every container that gets accelerators. Its value is their ids, sorted and separated
// by commas. The OCI hook acts on containers that have it.
const DevicesAnnotation = "acceld.dev/devices"

// Allocate answers from memory. If devices are chosen outside the kubelet, it also asks which containers have none
// yet. The kubelet stores the answer in its checkpoint and reuses it when the container restarts, so the answer
// names devices by what survives restarts and reboots.
func (s *service) Allocate(ctx context.Context, req *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	defer s.list.enter()()
	l := s.list.load()
	resp := &pluginapi.AllocateResponse{}
	for _, c := range req.GetContainerRequests() {
		answer, err := s.allocate(ctx, l, c.GetDevicesIds())
		if err != nil {
			return nil, err
		}
		resp.ContainerResponses = append(resp.ContainerResponses, answer)
	}
	return resp, nil
}

func (s *service) allocate(ctx context.Context, l *list, ids []string) (*pluginapi.ContainerAllocateResponse, error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	shared := func(id string) bool { return l.devices[id].replicas > 1 }
	alone := l.def.Sharing != nil && l.def.Sharing.FailRequestsGreaterThanOne
	if len(ids) > 1 && alone && slices.ContainsFunc(ids, shared) {
		return nil, status.Errorf(codes.InvalidArgument,
			"cannot allocate %d of %s: a container may ask for one, because its devices are shared", len(ids),
			s.cfg.Resource)
	}
	aside, answer := s.cfg.Profile == accel.AsideProfile && l.def.VFIO != nil, &pluginapi.ContainerAllocateResponse{}
	names, sources := make([]string, 0, len(ids)), l.def.NodesOf(s.cfg.Profile)
	for _, id := range ids {
		d, known := l.devices[id]
		switch {
		case !known:
			return nil, status.Errorf(codes.NotFound, "cannot allocate device %q: %s has no such device", id,
				s.cfg.Resource)
		case !d.offered() && !d.chosenBefore(l.devices, s.cfg.Now()):
			return nil, status.Errorf(codes.FailedPrecondition, "cannot allocate device %q: %s", id, d.refusal())
		case slices.Contains(names, d.of):
			continue // another replica of a device that the container already has
		}
		names = append(names, d.of)
		switch {
		case aside:
			addAside(answer, s.cfg.Resource, d)
		case s.cfg.CDI && d.bare: // a name that no spec has would keep the container from starting
		case s.cfg.CDI:
			answer.CdiDevices = append(answer.CdiDevices, &pluginapi.CDIDevice{Name: l.def.CDIName(d.of)})
		case len(d.nodes) == 0 && len(sources) > 0:
			return nil, status.Errorf(codes.FailedPrecondition, "cannot allocate device %q: it has no device node (%s)",
				id, accel.NodeMissing)
		default:
			for _, n := range d.nodes {
				answer.Devices = append(answer.Devices, deviceSpec(n.Path, accel.Permissions(sources)))
			}
			addBeside(answer, d)
			addEnv(answer, d.env)
		}
	}
	if err := s.chooser.check(ctx, l.devices, names, len(ids)); err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "cannot allocate %s of %s: %v", strings.Join(names, ","),
			s.cfg.Resource, err)
	}
	answer.Annotations = map[string]string{DevicesAnnotation: strings.Join(names, ",")}
	if !s.cfg.CDI && !aside {
		edit(answer, l.def)
	}
	return answer, nil
}

// addBeside adds the nodes of what is beside a device. Two devices may have the same network function beside them.
func addBeside(answer *pluginapi.ContainerAllocateResponse, d device) {
	for _, n := range d.beside {
		if !slices.ContainsFunc(answer.Devices, func(s *pluginapi.DeviceSpec) bool { return s.GetHostPath() == n }) {
			answer.Devices = append(answer.Devices, deviceSpec(n, "rw"))
		}
	}
}

// addAside adds a device that is set aside: the nodes of VFIO, and the variable in which KubeVirt looks for the
// addresses of a resource's devices (kubevirt/kubevirt, pkg/util, ResourceNameToEnvVar). CDI is not needed: there is
// nothing else of the kind that such a container could use.
func addAside(answer *pluginapi.ContainerAllocateResponse, resource string, d device) {
	const permissions = "mrw"
	if answer.Devices == nil {
		answer.Devices = append(answer.Devices, deviceSpec(accel.VFIONode, permissions))
	}
	for _, n := range d.nodes {
		answer.Devices = append(answer.Devices, deviceSpec(n.Path, permissions))
	}
	name := "PCI_RESOURCE_" + strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(resource))
	if before := answer.Envs[name]; before != "" {
		addEnv(answer, []string{name + "=" + before + "," + d.pci})
		return
	}
	addEnv(answer, []string{name + "=" + d.pci})
}

// edit adds what every container of the kind gets in addition to its devices.
func edit(answer *pluginapi.ContainerAllocateResponse, def *accel.Definition) {
	for _, path := range def.Container.Nodes {
		answer.Devices = append(answer.Devices, deviceSpec(path, accel.Permissions(def.Nodes)))
	}
	for _, m := range def.Container.Mounts {
		if m.Optional {
			continue // only with CDI: a call of the kubelet does not look up whether the host has it
		}
		answer.Mounts = append(answer.Mounts, &pluginapi.Mount{
			HostPath: m.HostPath, ContainerPath: m.ContainerPath, ReadOnly: len(m.Options) == 0 ||
				slices.Contains(m.Options, "ro"),
		})
	}
	addEnv(answer, def.Container.Env)
}

func addEnv(answer *pluginapi.ContainerAllocateResponse, env []string) {
	for _, e := range env {
		if name, value, ok := strings.Cut(e, "="); ok {
			if answer.Envs == nil {
				answer.Envs = map[string]string{}
			}
			answer.Envs[name] = value
		}
	}
}

func deviceSpec(path, permissions string) *pluginapi.DeviceSpec {
	return &pluginapi.DeviceSpec{HostPath: path, ContainerPath: path, Permissions: permissions}
}
