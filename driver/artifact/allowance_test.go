package artifact

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/acceld/acceld/accel"
)

// oneBlob is a place that takes its time to deliver the only blob it has.
type oneBlob struct {
	place
	text  string
	takes time.Duration
}

func (p oneBlob) blob(context.Context, v1.Descriptor) (io.ReadCloser, error) {
	time.Sleep(p.takes)
	return io.NopCloser(strings.NewReader(p.text)), nil
}

func (p oneBlob) descriptor() v1.Descriptor {
	d := v1.Descriptor{Size: int64(len(p.text)), Digest: v1.Hash{Algorithm: "sha256"}}
	d.Digest.Hex = sum(p.text)
	return d
}

// TestUnpackingTakesLong: a host that needs an hour to unpack each layer does not use up the registry's time. A
// registry that delivers too slowly still runs out of it.
func TestUnpackingTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorkbench(t)
		p, problem := b.c.pull(accel.Source{}, this(), b.empty()) // 10 s
		if problem != nil {
			t.Fatal(problem)
		}
		ctx, stop := p.time.share(t.Context(), 1)
		defer stop()
		from := oneBlob{text: "layer", takes: 4 * time.Second}
		unpacked := 0
		for i, want := range []error{nil, nil, context.Canceled, context.Canceled} {
			err := p.layer(ctx, b.c.begin(accel.StagePull, "x"), from, from.descriptor(), func(io.ReadSeeker) error {
				time.Sleep(time.Hour)
				unpacked++
				return ctx.Err()
			})
			if !errors.Is(err, want) {
				t.Errorf("layer %d: %v, want %v", i, err, want)
			}
		}
		if cause := context.Cause(ctx); unpacked != 2 || !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("%d layers unpacked, ended by %v", unpacked, cause)
		}
	})
}

// TestShares: what a registry does not need is left to those behind it, and unpacking counts for none.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &allowance{left: 9 * time.Second}
		for _, step := range []struct {
			n                  int
			takes, share, left time.Duration
		}{
			{3, time.Second, 3 * time.Second, 8 * time.Second},
			{2, time.Minute, 4 * time.Second, 4 * time.Second},
			{1, 3 * time.Second, 4 * time.Second, time.Second},
		} {
			ctx, stop := a.share(t.Context(), step.n)
			if err := a.pause(func() error { time.Sleep(time.Hour); return ctx.Err() }); err != nil {
				t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(step.takes):
			}
			late := ctx.Err() != nil
			if err := a.pause(func() error { return nil }); (err != nil) != late || late != (step.takes > step.share) {
				t.Errorf("%+v: late %v, %v", step, late, err)
			}
			if stop(); a.shared != step.share || a.left != step.left {
				t.Errorf("%+v: share %v, %v left", step, a.shared, a.left)
			}
		}
	})
}
