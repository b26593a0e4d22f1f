// Package dra tells the kubelet and the scheduler about one kind of accelerator by dynamic resource allocation: it
// publishes the devices as ResourceSlices of the own node, and prepares and takes back the claims that were allocated
// to them. It is what package deviceplugin is for extended resources; a kind has one of the two at a time.
//
// It may not look at a device and decides nothing about health: both come with [Plugin.Update]. It writes sockets in
// the kubelet's directories, the records of prepared claims below the state directory, one CDI spec for each prepared
// claim, and at the API server ResourceSlices of its own driver and node and the DeviceClass of the kind.
//
// The kubelet's protocol is spoken without k8s.io/dynamic-resource-allocation, which needs client-go's clientset, and
// the objects of resource.k8s.io/v1 are read and written as the few fields that matter here.
package dra
