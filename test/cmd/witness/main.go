// Command witness tells what happens on a machine, and when, by one clock: what the kernel says of devices, when udev
// has dealt with it, changes in directories, and what a running acceld says of a kind. It shares no code with acceld
// but the form of its answers. A line is seconds since it began, who tells, and what:
//
//	1.204513 kernel remove pci /devices/pci0000:00/0000:00:10.0/0000:01:00.0
//	1.251020 udev remove pci /devices/pci0000:00/0000:00:10.0/0000:01:00.0
//	1.300117 file /run/cdi/qemu.org-edu.json
//	1.420333 agent usable=1 replicas=0
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"
)

// sheet is where lines are written, in the order of their times.
type sheet struct {
	mu    sync.Mutex
	began time.Time
}

// note writes a line.
func (s *sheet) note(who, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("%.6f %s %s\n", time.Since(s.began).Seconds(), who, what)
}

func main() {
	url := flag.String("machine", "http://127.0.0.1:9480/v1/machine", "where acceld says how things stand")
	kind := flag.String("kind", "qemu-edu", "the `kind` that is told of")
	flag.Parse()
	s := &sheet{began: time.Now()}
	failed := make(chan error)
	go func() { failed <- s.uevents() }()
	go func() { failed <- s.files(flag.Args()) }()
	go func() { failed <- s.agent(context.Background(), *url, *kind) }()
	fmt.Fprintln(os.Stderr, "witness:", <-failed)
	os.Exit(1)
}
