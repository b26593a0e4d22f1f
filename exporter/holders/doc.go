// Package holders follows which containers hold accelerators, through the device plugin and by resource claims. It
// asks the kubelet's PodResources service when something has happened on the node, and periodically while any
// container holds an accelerator. It keeps the result in memory, so that no reader waits for a kubelet, and replaces
// it as a whole, so that it does not grow with pods that have ended. It changes nothing and allocates no device.
package holders
