package bed

import (
	"context"

	"github.com/acceld/acceld/test/vm/image"
)

// PushImage stores an image that is busybox with these files on top, and returns the name that a pod gives for it.
func (g *Guest) PushImage(ctx context.Context, name string, files map[string]image.File, entrypoint ...string) (string,
	error,
) {
	all, err := g.bed.busyboxFiles()
	if err != nil {
		return "", err
	}
	for path, f := range files {
		all[path] = f
	}
	err = g.bed.registry.Push(ctx, name, image.Spec{Files: all, Entrypoint: entrypoint})
	return g.Image(name), err
}

// Image is the name that a pod gives for an image of the bed's registry. "bed/busybox:1" is always there.
func (g *Guest) Image(name string) string { return g.bed.GuestRegistry() + "/" + name }

// Registry is where tests may push images themselves, as seen from the host.
func (g *Guest) Registry() string { return g.bed.Registry() }
