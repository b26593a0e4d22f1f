// Package supply makes what every guest needs and what takes minutes the first time: the distribution's packages, the
// real programs and the Debian disk. It starts no guest and imports no Kubernetes client, so a command that only
// prepares compiles quickly.
package supply

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/disk"
	"github.com/acceld/acceld/test/vm/hostpkg"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/test/vm/seed"
)

// Config says what guests have. The zero value has everything that guests and clusters need.
type Config struct {
	// Engines are the container runtimes that guests can have; all of them unless set.
	Engines []seed.Engine
	// NoCluster leaves Kubernetes out: the guests are light ones and hosts.
	NoCluster bool
	// Later are parts that the caller builds itself, later.
	Later []string
	// Idle says that something else is more important than what is compiled.
	Idle bool
}

// Runtimes returns the container runtimes that guests can have.
func (c Config) Runtimes() []seed.Engine {
	if len(c.Engines) == 0 {
		return []seed.Engine{seed.CRIO, seed.Containerd}
	}
	return c.Engines
}

// parts returns the names of what must be built, with what a guest without a cluster needs first.
func (c Config) parts() []string {
	var names []string
	for _, e := range c.Runtimes() {
		names = append(names, string(e))
	}
	names = append(names, parts.Runc)
	if c.NoCluster {
		return names
	}
	later := func(name string) bool { return slices.Contains(c.Later, name) }
	return append(names, slices.DeleteFunc(parts.Cluster(), later)...)
}

// Supply is what was made.
type Supply struct {
	Parts  parts.Set
	Debian disk.Debian
}

// Make makes what is missing, side by side: fetching waits for the network, compiling for processors, and installing
// Debian, which takes the longest, for both and for the disk. QEMU is needed last.
func Make(ctx context.Context, log *progress.Log, c Config) (s Supply, err error) {
	dir, err := cache.Open(log.Say)
	if err != nil {
		return s, err
	}
	all, making := errgroup.WithContext(ctx)
	installed := make(chan struct{})
	tools := func() error {
		select {
		case <-installed:
			return nil
		case <-making.Done():
			return making.Err()
		}
	}
	all.Go(func() error {
		_, unlock, err := dir.Lock(making, "packages")
		if err != nil {
			return err
		}
		defer unlock()
		if err := hostpkg.EnsureTools(making, log); err != nil {
			return err
		}
		close(installed)
		return hostpkg.EnsureQEMU(making, log)
	})
	names := c.parts()
	fetched := make(chan string, len(names)) // one is compiled while the next one is fetched
	all.Go(func() error {
		defer close(fetched)
		for _, name := range names {
			if err := parts.Fetch(making, dir, log, name); err != nil {
				return err
			}
			fetched <- name
		}
		return nil
	})
	all.Go(func() (err error) {
		if err := tools(); err != nil { // they include the compiler for what is written in C
			return err
		}
		for name := range fetched {
			built, err := parts.Builder{Idle: c.Idle}.Build(making, dir, log, name)
			if err != nil {
				return err
			}
			s.Parts = s.Parts.With(built)
		}
		return making.Err()
	})
	all.Go(func() (err error) {
		if err := tools(); err != nil {
			return err
		}
		s.Debian, err = disk.Make(making, dir, log)
		return err
	})
	return s, all.Wait()
}
