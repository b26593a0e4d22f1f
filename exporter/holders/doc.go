// Package holders follows which containers hold accelerators, through the device plugin and by resource claims. It asks
// the kubelet's PodResources service when something has happened on the node and, while anybody holds one, from time to
// time. What it knows is in memory, so that nobody who reads it waits for a kubelet, and is replaced as a whole, so
// that it does not grow with pods that have ended. It changes nothing, and gives no device to anybody.
package holders
