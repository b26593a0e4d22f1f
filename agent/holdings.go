package agent

import (
	"slices"

	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/exporter/holders"
)

// follower creates the task that knows who holds which device.
func (p *plugins) follower() *holders.Follower {
	return holders.New(holders.Options{
		Host: p.Host, Root: p.kubeletRoot, Log: p.Log,
		Active: func() bool { return len(p.all()) > 0 }, Device: p.deviceOf, Claimed: p.claimedOf, Claims: p.prepared,
	})
}

// deviceOf returns the accelerator behind a device of an extended resource.
func (p *plugins) deviceOf(resource, id string) (accelerator string, ours bool) {
	for _, s := range p.all() {
		if s.devices != nil && slices.Contains(s.devices.Names(), resource) {
			return deviceplugin.DeviceOf(id), true
		}
	}
	return "", false
}

// claimedOf returns the accelerator behind a device of a DRA driver.
func (p *plugins) claimedOf(driver, device string) (accelerator string, ours bool) {
	for _, s := range p.all() {
		if s.claims != nil && s.claims.Driver() == driver {
			return s.claims.AcceleratorOf(device), true
		}
	}
	return "", false
}

// prepared returns the devices that are prepared for claims.
func (p *plugins) prepared() []holders.Hold {
	var all []holders.Hold
	for _, s := range p.all() {
		if s.claims == nil {
			continue
		}
		for _, h := range s.claims.Known() {
			all = append(all, holders.Hold{Accelerator: h.Device, Holder: exporter.Holder{
				Namespace: h.Namespace, Pod: h.Pod, UID: h.UID, Resource: s.claims.Driver(), Claim: h.Claim,
			}})
		}
	}
	return all
}
