// Package vm is the test bed: real kernels, real PCI devices, a real container runtime and a real Kubernetes, with
// nothing mocked but the silicon. It may be used by tests only; package bed is the same without package testing, with
// contexts and errors, for the demo and for the command testbed.
//
// # What stands where
//
// A guest is a QEMU machine (KVM where it works, emulated elsewhere) with a plain Debian: systemd, kernels with their
// headers, gcc, DKMS, CRI-O or containerd, runc, kubelet. Beside it, natively on the host's loopback, run etcd,
// kube-apiserver, kube-scheduler, kube-controller-manager and an image registry. The accelerators are QEMU's `edu`
// devices, PCI 1234:11e8, behind PCIe root ports: they have registers, interrupts and DMA, and they can be plugged and
// unplugged.
//
//	light   busybox init over the Debian disk, writes go to memory. Modules, hooks, hot-plug, container runtime
//	host    systemd, container runtime installed but not started. Units, upgrades, reboots
//	node    host + container runtime + kubelet + control plane: a Ready node
//
// Options.Kernel chooses the kernel: one of the two of the disk, or the next Debian's, for which nothing can be built.
// Options.Engine chooses the container runtime; the other one is not in the guest. StartPair starts two nodes of one
// cluster. image.Serve is a registry that a test can make refuse, lie, dawdle or hang up.
//
// # A scenario
//
//	func TestCard(t *testing.T) {
//		n := vm.StartNode(t, vm.Options{Accelerators: 2})
//		n.Put("acceld", "/usr/bin/acceld", 0o755)
//		n.MustRun("systemd-run", "--unit=acceld", "acceld", "run")
//		n.WaitAllocatable("acceld.dev/edu", 2)
//		n.Unplug(1)
//		n.WaitAllocatable("acceld.dev/edu", 1)
//	}
//
// Every method ends the test when it fails. Run and Sh return how a command ended, MustRun and MustSh insist on
// success. A command is an argument vector that no shell looks at; a script for Sh is a constant, and what varies are
// its $1, $2.
//
// # How to run it
//
//	ACCELD_TESTBED=1 go test -p 1 -timeout 40m ./test/...
//	go run ./test/vm/cmd/testbed parts | node | light | clean
//
// Without the variable the tests skip; with it a missing part is a failure. The first time takes minutes and needs root
// and the network (Debian's archive and Go modules); it installs the distribution's packages that are missing. What is
// built depends on the bed's Config: without a cluster there is no Kubernetes to build. Everything is kept in
// $ACCELD_CACHE, by default `acceld` in the user's cache folder, keyed by content. Three beds at a time find a seat
// there, each with ports and snapshots of its own; others wait and say so.
//
// # How it is quick
//
// A snapshot holds a guest's memory, disk and etcd data at the moment it was ready. A scenario goes on from it with a
// disk overlay and a copy of etcd's data of its own, so scenarios never see each other; then the clock is stepped and
// the connections that lead nowhere are ended. Snapshots are made without accelerators, because edu cannot be saved;
// they are plugged in afterwards. The first guest of a kind is saved on its way and runs on. Options.FreshBoot boots
// from power-on and saves nothing.
//
// # Power cuts
//
// QEMU's disks are in this machine's memory or page cache, so that nothing of them is lost when QEMU is killed. With
// Options.LosesCache a host's disk is served by package nbd, which keeps apart what the guest has flushed: a Reboot
// with PowerCut kills QEMU and goes on with that alone.
//
// # The ways in and out
//
// The guest has two network cards. Over the first the bed runs commands (package channel, served by cmd/guestd); it
// leads nowhere else and stays when the second, the cluster's, is cut. On the second the guest is 10.0.2.15 and the
// host's loopback is 10.0.2.2: API server and registry are there. Pods have a bridge of their own, 10.85.0.0/16, and
// reach the API server at 10.96.0.1:443 as in any cluster. The API server reaches kubelets and pods through its egress
// selector. There is no service proxy and no DNS: pod addresses work, services do not; what runs beside the guests
// reaches one through Node.Forward.
//
// # What is left behind
//
// Nothing runs after a test, even one that was killed: children die with their parent, and the next run ends what
// slipped through. When a test fails, the serial console, journal, kernel log, cluster objects and component logs are
// kept in $ACCELD_CACHE/failures, the newest twenty, and the test's log says where.
package vm
