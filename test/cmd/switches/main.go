// Command switches plays a scheduler and a kubelet for one DRA driver of a node: it makes claims at random, allocates
// them, lets the driver prepare them, computes on their devices in containers, and takes the claims back. A device is
// in turn whole with its own driver, in parts, and whole with VFIO. It is how a thousand switches fit into a test: a
// pod of a real kubelet takes many times as long. It ends with 1 if a container did not compute, or not on the device
// that its claim has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// options are what the flags say.
type options struct {
	kubeconfig, driver, node, program, kill string
	count                                   int
	seed                                    uint64
	patience                                time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the credentials of somebody who may allocate claims")
	flag.StringVar(&o.driver, "driver", "", "the driver's `name`")
	flag.StringVar(&o.node, "node", "", "the node's `name`, which is the pool")
	flag.StringVar(&o.program, "program", "/usr/bin/edu-check", "the static `program` that computes in containers")
	flag.StringVar(&o.kill, "kill", "", "a `command` that kills the driver, called during or right after one call of twenty")
	flag.IntVar(&o.count, "count", 10, "`how many` lives there are, over all devices")
	flag.Uint64Var(&o.seed, "seed", 0, "`number` that repeats an order")
	flag.DurationVar(&o.patience, "patience", 5*time.Minute, "how `long` a call is repeated until it counts as failed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "switches:", err)
		os.Exit(1)
	}
}

// stage is what all devices have in common.
type stage struct {
	options
	api   kubernetes.Interface
	cache *cdi.Cache

	specs sync.Mutex // of the cache
	mu    sync.Mutex
	lived map[string]int // by what a device was
	kills int
	tries int // calls that were repeated
}

func run(ctx context.Context, o options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	s := &stage{options: o, lived: map[string]int{}}
	if s.api, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if s.cache, err = cdi.NewCache(cdi.WithSpecDirs("/var/run/cdi", "/etc/cdi"), cdi.WithAutoRefresh(false)); err != nil {
		return err
	}
	devices, err := s.devices(ctx)
	if err != nil {
		return err
	}
	begin, errs := time.Now(), make([]error, len(devices))
	var all sync.WaitGroup
	for i, d := range devices {
		all.Go(func() {
			random := rand.New(rand.NewPCG(o.seed, uint64(i)))
			for n := i; n < o.count && errs[i] == nil && ctx.Err() == nil; n += len(devices) {
				errs[i] = s.live(context.WithoutCancel(ctx), d, random, n) // a signal ends it after this life
			}
		})
	}
	all.Wait()
	fmt.Printf("lives %v on %d devices in %.0f s, %d kills, %d calls repeated\n", s.lived, len(devices),
		time.Since(begin).Seconds(), s.kills, s.tries)
	return errors.Join(errs...)
}

// note counts a life, and says every so often how many there were.
func (s *stage) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lived[what]++
	total := 0
	for _, n := range s.lived {
		total += n
	}
	if total%50 == 0 {
		fmt.Printf("%s %d lives: %v, %d kills, %d calls repeated\n", time.Now().Format(time.TimeOnly), total, s.lived, s.kills,
			s.tries)
	}
}
