package cli

import (
	"slices"

	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/exporter/holders"
)

// follower makes the task that knows who holds which device.
func (a *running) follower() *holders.Follower {
	return holders.New(holders.Options{
		Host: a.host, Root: a.kubeletRoot, Log: a.log,
		Active: func() bool { return len(a.offers()) > 0 }, Device: a.deviceOf, Claimed: a.claimedOf, Claims: a.prepared,
	})
}

// offers returns what offers kinds to the kubelet, or did until it was stopped.
func (a *running) offers() []*serving {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*serving, 0, len(a.plugins))
	for _, s := range a.plugins {
		all = append(all, s)
	}
	return all
}

// deviceOf returns the accelerator that a device of an extended resource is.
func (a *running) deviceOf(resource, id string) (accelerator string, ours bool) {
	for _, s := range a.offers() {
		if s.devices != nil && slices.Contains(s.devices.Names(), resource) {
			return deviceplugin.DeviceOf(id), true
		}
	}
	return "", false
}

// claimedOf returns the accelerator that a device of a driver of claims is.
func (a *running) claimedOf(driver, device string) (accelerator string, ours bool) {
	for _, s := range a.offers() {
		if s.claims != nil && s.claims.Driver() == driver {
			return s.claims.AcceleratorOf(device), true
		}
	}
	return "", false
}

// prepared returns what is prepared for claims.
func (a *running) prepared() []holders.Hold {
	var all []holders.Hold
	for _, s := range a.offers() {
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
