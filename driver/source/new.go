package source

import (
	"context"
	"log/slog"
	"sync"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/build"
	"github.com/acceld/acceld/driver/firmware"
	"github.com/acceld/acceld/driver/progress"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/userspace"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// Parts are what sources need to work.
type Parts struct {
	Log      *slog.Logger
	Store    *store.Store
	Attempts *store.Attempts
	Builder  *build.Builder
	Firmware *firmware.Firmware
	Spaces   *userspace.Spaces
	Tell     progress.Teller
	// Artifact configures access to registries.
	Artifact artifact.Options
	// Trust is the host's policy on signatures.
	Trust accel.Trust
	Elect Elect // if nil, every host builds for itself
}

// Elect makes this host the builder of a driver that will be published, or names the host that is. Release gives up
// the lease. If there is an error, the host builds for itself.
type Elect func(ctx context.Context, key string) (release func(), elected bool, holder string, err error)

// Sources are the sources of one host. They are safe for concurrent use.
type Sources struct {
	h        *host.Host
	log      *slog.Logger
	store    *store.Store
	attempts *store.Attempts
	builder  *build.Builder
	firmware *firmware.Firmware
	spaces   *userspace.Spaces
	o        Parts

	mu sync.Mutex
	// awaited has, by kind, the keys that another host is building; published has the results of publishing, by key.
	awaited, published map[string]string
	background         guard.Group // publishing in progress
}

// New returns the sources of a host.
func New(h *host.Host, o Parts) *Sources {
	return &Sources{
		h: h, log: o.Log, store: o.Store, attempts: o.Attempts, builder: o.Builder, firmware: o.Firmware,
		spaces: o.Spaces, o: o, awaited: map[string]string{}, published: map[string]string{},
	}
}
