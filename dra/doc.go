// Package dra offers one kind of accelerator to the kubelet and the scheduler through dynamic resource allocation
// (DRA). It publishes the devices of its own node as ResourceSlices, and it prepares and unprepares the claims that
// were allocated to them. Package deviceplugin does the same for extended resources; a kind uses one of the two at a
// time.
//
// It may not inspect devices and makes no health decisions: devices and their health come with [Plugin.Update]. It
// writes sockets in the kubelet's directories, the records of prepared claims below the state directory, and one CDI
// spec for each prepared claim. At the API server it writes the ResourceSlices of its own driver and node and the
// DeviceClasses of the kind.
//
// It speaks the kubelet's protocol without k8s.io/dynamic-resource-allocation, which needs client-go's clientset. It
// reads and writes only those fields of the resource.k8s.io/v1 objects that matter here.
package dra
