// Package agent starts goroutines.
package agent

import (
	"sync"

	_ "golang.org/x/sync/errgroup"
)

var once sync.Once

func run(w *sync.WaitGroup) { go run(w) }
