package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// light is the first half. It closes computed when a container has computed there.
func (d *demo) light(ctx context.Context, b *bed.Bed, computed chan<- struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	g, err := b.StartLight(ctx, bed.Options{Accelerators: 2, Engine: "containerd"})
	if err != nil {
		return err
	}
	defer g.Stop()
	if _, err := g.Start(ctx, nil, nil, "containerd", "--log-level=error"); err != nil {
		return err
	}
	image, err := d.image(ctx, b)
	if err != nil {
		return err
	}
	pulled, copied := make(chan error, 1), make(chan error, 1)
	go func() { pulled <- stage.Must(g.Sh(ctx, pull, image)) }()
	go func() { copied <- d.copyPrograms(ctx, g) }()
	d.title("The kernel, lspci and /dev of the machine: two accelerators, no driver.")
	if err := d.shell(ctx, g, bare); err != nil {
		return err
	}
	if err := d.driver(ctx, g); err != nil {
		return err
	}
	if err := <-copied; err != nil {
		return err
	}
	d.title("acceld run")
	began := time.Now()
	if err := d.agent(ctx, g); err != nil {
		return err
	}
	d.say("ready %.1f s after its start", time.Since(began).Seconds())
	if err := <-pulled; err != nil {
		return err
	}
	d.title("ctr run --device %s=0000:01:00.0 … edu-check -expect 1, by containerd", stage.Resource)
	if err := d.shell(ctx, g, container, image, stage.Resource+"=0000:01:00.0"); err != nil {
		return err
	}
	close(computed)
	d.say("the first accelerator is ready, and a container computed on it: %.0f s after the start of this demo",
		time.Since(d.start).Seconds())
	d.title("acceld status")
	if err := d.shell(ctx, g, "acceld status"); err != nil {
		return err
	}
	d.title("curl http://127.0.0.1:9480/healthz, and of /metrics some lines of the first device")
	return d.shell(ctx, g, curl)
}

const bare = "uname -sr; lspci -nnk -d 1234:11e8; ls /dev/edu* 2>&1 || true; lsmod | grep -w edu || echo 'module edu: not loaded'"

const curl = `curl -fsS http://127.0.0.1:9480/healthz; echo
curl -fsS http://127.0.0.1:9480/metrics | grep -E '^accelerator_(up|info|healthy|temperature_celsius)\{.*0000:01'`

// copyPrograms puts the programs of acceld onto the machine.
func (d *demo) copyPrograms(ctx context.Context, g *bed.Guest) error {
	for _, p := range []string{"acceld", "acceld-hook", "edu-check"} {
		if err := g.Put(ctx, d.stage.Program(p), "/usr/bin/"+p, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// driver puts a driver that is built already onto the machine.
func (d *demo) driver(ctx context.Context, g *bed.Guest) error {
	return d.log.Do("the driver for this kernel: built beside the machine the first time, prebuilt from then on",
		func() error {
			return d.stage.Store(ctx, g, stage.Version)
		})
}

// agent starts the agent and prints each change of state from its log until it is ready.
func (d *demo) agent(ctx context.Context, g *bed.Guest) error {
	out, in := io.Pipe()
	if _, err := g.Start(ctx, in, in, "acceld", "run"); err != nil {
		return err
	}
	go d.transitions(out)
	_, err := stage.WaitMachine(ctx, g, "the accelerators to be ready", stage.InState(accel.Ready))
	return err
}

// transitions prints the changes of state that are in an agent's log.
func (d *demo) transitions(log io.Reader) {
	change := regexp.MustCompile(`msg="state changed" kind=(\S+) from=(\S+) to=(\S+) took=(\S+)`)
	found := regexp.MustCompile(`msg="accelerators found" kind=(\S+) state=(\S+) .* took=(\S+)`)
	failure := regexp.MustCompile(`msg="step failed".* reason=(\S+) message=("[^"]*"|\S+)`)
	for scan := bufio.NewScanner(log); scan.Scan(); {
		if m := change.FindStringSubmatch(scan.Text()); m != nil {
			d.say("  %s: %s -> %s (after %s)", m[1], m[2], m[3], m[4])
		} else if m := found.FindStringSubmatch(scan.Text()); m != nil {
			d.say("  %s: %s after %s", m[1], m[2], m[3])
		} else if m := failure.FindStringSubmatch(scan.Text()); m != nil {
			d.say("  %s: %s", m[1], m[2])
		}
	}
}

// image is the program that computes, as an image in the test bed's registry.
func (d *demo) image(ctx context.Context, b *bed.Bed) (ref string, err error) {
	program, err := os.ReadFile(d.stage.Program("edu-check"))
	if err != nil {
		return "", err
	}
	return b.PushProgram(ctx, "edu-check:demo", "/edu-check", program)
}

// pull waits for containerd's socket and pulls an image.
const pull = `until ctr version >/dev/null 2>&1; do sleep 0.2; done
ctr images pull --local --plain-http --snapshotter native "$1"`

// container runs an image with one device by its CDI name.
const container = `ctr run --rm --snapshotter native --device "$2" "$1" compute /edu-check -expect 1`

// shell prints what a fixed script says in the guest.
func (d *demo) shell(ctx context.Context, g *bed.Guest, script string, args ...string) error {
	res, err := g.Sh(ctx, script, args...)
	if err := stage.Must(res, err); err != nil {
		return fmt.Errorf("%s: %w", script, err)
	}
	d.show(res.Stdout)
	return nil
}
