// Command edu-check proves that an edu accelerator works: it finds every
// /dev/edu<N> that it can see, or the partitions /dev/edu<N>p<M> of one that
// is divided, has each compute factorials and move a block of
// data through its memory, and compares the answers with the CPU's.
//
// It is what a workload is in the test bed: a static binary that runs in a
// bare guest, on a host and in a container, and whose exit code says what
// happened: 0 all devices answered right, 1 one did not (or the number of
// devices is not the one expected), 2 wrong usage, 3 a device went away.
// With -hold it keeps the devices open and busy until it is told to stop.
//
// It reads and writes nothing but those device nodes. With -vfio it is a driver in user space instead, and computes
// on the registers of the devices that its container was given with VFIO.
package main
