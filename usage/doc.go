// Package usage finds out who uses a device although nobody gave it to them: a privileged pod, a pod that uses another
// device than its own, a container that no kubelet has started, a process of the host. It looks at the processes of the
// host now and then, because the opening of a device is no event, and never for more than a small share of one
// processor. It names what it finds, and ends nobody's work.
//
// Only the nodes of exactly one device count. What counts as given is what the kubelet and the claims say: a device is
// given to a pod with all its containers. The records on the host are read first, because they are written before a
// container starts; only somebody whom they do not know is worth a question to the kubelet and the API server. As long
// as one of them does not answer, nobody is named. A process is named if it was seen at two looks.
//
// Without a kubelet nobody knows who was given what, so the package does nothing.
package usage
