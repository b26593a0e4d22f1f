package build

import (
	"log/slog"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/progress"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/toolchain"
	"github.com/acceld/acceld/host"
)

// Options of a [Builder]; all but the limits are required.
type Options struct {
	Log   *slog.Logger
	Store *store.Store
	Tell  progress.Teller
	// Images are the builder images.
	Images *toolchain.Images
	// Timeout bounds one build; Jobs is make's -j.
	Timeout time.Duration
	Jobs    int
	// Memory is what one build may use, in bytes; no cap when zero. CPUWeight is the build's CPU weight, relative to
	// the default of 100; zero leaves the weight unchanged.
	Memory    int64
	CPUWeight int
	// Trust is the host's policy on signatures.
	Trust accel.Trust
}

// Builder builds drivers on one host.
type Builder struct {
	h     *host.Host
	log   *slog.Logger
	store *store.Store
	tell  progress.Teller
	o     Options
}

// New returns the builder of a host.
func New(h *host.Host, o Options) *Builder {
	return &Builder{h: h, log: o.Log, store: o.Store, tell: o.Tell, o: o}
}
