// Package usage finds out who uses a device: how much each container and each service uses of it, and who uses it
// although nobody gave it to them: a privileged pod, a pod that uses another device than its own, a container that no
// kubelet has started, a process of the host. It looks at the processes of the host now and then, because the opening
// of a device is no event, and never for more than a small share of one processor. One look serves both questions. It
// names what it finds, and ends nobody's work.
//
// How much somebody uses is what the driver says about open files of the device's nodes (/proc/<pid>/fdinfo), or what
// the kind's probe program says about processes. The kernel decides which process has a node open, and its control
// group whose it is: what a program says about any other process counts for nothing. What an open file has used ends
// with it, so the package adds up what was used between two looks, by container.
//
// Of use without a request the following holds.
//
// Only the nodes of exactly one device count. What counts as given is what the kubelet and the claims say: a device is
// given to a pod with all its containers. The records on the host are read first, because they are written before a
// container starts; only somebody whom they do not know is worth a question to the kubelet and the API server. As long
// as one of them does not answer, nobody is named. A process is named if it was seen at two looks.
//
// Without a kubelet nobody knows who was given what, so nobody is named.
package usage
