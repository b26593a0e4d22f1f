package dra

import (
	"time"

	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/acceld/acceld/accel"
)

// maxMessage is the maximum length of a device's message (dra-health/v1, DeviceHealth).
const maxMessage = 1024

// watcher reports the health of the devices to the kubelet, which shows it in the status of the pods that have them.
type watcher struct {
	drahealth.UnsafeDRAResourceHealthServer
	*Plugin
	over <-chan struct{} // closed when the service ends
}

// NodeWatchResources sends the health of all devices: at once, after each change, and in time before the kubelet's
// copy expires. If nothing monitors the devices any more, it stops sending, and the kubelet reports "unknown".
func (w watcher) NodeWatchResources(_ *drahealth.NodeWatchResourcesRequest,
	stream drahealth.DRAResourceHealth_NodeWatchResourcesServer,
) error {
	confirm := time.NewTicker(w.timing.confirm)
	defer confirm.Stop()
	for {
		v := w.list.load()
		if v.reported && (w.cfg.Alive == nil || w.cfg.Alive() == nil) {
			if err := stream.Send(healthOf(v, w.cfg.Node, time.Now())); err != nil {
				return err
			}
		}
		select {
		case <-v.replaced:
		case <-confirm.C:
		case <-w.over:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// healthOf renders the health of every device.
func healthOf(v *version, pool string, now time.Time) *drahealth.NodeWatchResourcesResponse {
	all := &drahealth.NodeWatchResourcesResponse{}
	for _, a := range v.sorted() { // sorted, not list: a device that is held in another way is not unhealthy
		d := &drahealth.DeviceHealth{
			Device:          &drahealth.DeviceIdentifier{PoolName: pool, DeviceName: DeviceName(a.ID)},
			LastUpdatedTime: now.Unix(), HealthCheckTimeoutSeconds: 30,
			Message: shorten(a.Health.Message, maxMessage),
		}
		switch a.Health.State {
		case accel.Healthy, accel.Degraded:
			d.Health = drahealth.HealthStatus_HEALTHY
		case accel.Unhealthy, accel.Gone:
			d.Health = drahealth.HealthStatus_UNHEALTHY
		}
		all.Devices = append(all.Devices, d)
	}
	return all
}
