// Package devices keeps in the cluster what devices have been through on all of its hosts: one object for each device,
// by its serial number. It merges what nodes report about their own devices (accel.DeviceReport) and judges nothing.
//
// A node that lies must not be able to rewrite the past of another node's device. So a record has one entry for each
// host, which follows from what that node itself has reported, and a node can only add to what it has said: counts
// never go down, and a record that the host began again is added to the earlier one. If several nodes say at the same
// time that they have a device, the record names them all. Records are bounded, and so is how many a node can begin
// and how many writes it can cause.
//
// Nothing is written while nothing happens: that a device is still there is no news. That a device has left a host is
// written once it has been so for a while, because a driver that is reloaded, and a node that starts, have not said
// their serial numbers yet. If it is not known whether a host still has a device, nothing changes.
package devices
