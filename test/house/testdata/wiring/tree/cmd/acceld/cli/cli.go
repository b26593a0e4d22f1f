package cli

import (
	"os/signal"
	"sync"

	"example.com/house/accel"
)

func run(group *sync.WaitGroup) {
	go work()
	group.Go(work)
	signal.Notify(nil)
	show(accel.Health{State: "healthy"})
	var none accel.Health
	show(none)
}
