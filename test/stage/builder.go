package stage

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/image"
)

// builderRoot packs the programs and libraries of a Debian, as its packages have them, without kernels and headers:
// what a builder image has.
const builderRoot = `cd "$1"
tar -cf "$2" --exclude=usr/lib/modules --exclude='usr/lib/linux-kbuild-*' --exclude=usr/lib/systemd \
	--exclude=usr/lib/python3 bin lib lib64 etc/alternatives usr/bin usr/lib usr/lib64 usr/include usr/share/dpkg`

// Builder pushes a builder image to a registry of the test: make, the compiler and binutils of the guest's Debian. It
// returns the image's name, with a tag, as the guest gives it. The bed's cache keeps what is in it for as long as the
// guest's disk stays the same.
func (s *Stage) Builder(ctx context.Context, g *bed.Guest, r *image.Registry) (string, error) {
	key := cache.NewKey(builderRoot, g.Key())
	dir, err := g.Keep(ctx, "builder", key, func(tmp string) error {
		out, err := exec.CommandContext(ctx, "sh", "-euc", builderRoot, "sh", g.Tree(),
			filepath.Join(tmp, "builder.tar")).CombinedOutput()
		if err != nil {
			return fmt.Errorf("cannot pack a builder image: %w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	const name = "builder:debian12"
	return r.GuestAddress() + "/" + name, r.PushLayer(ctx, name, filepath.Join(dir, "builder.tar"))
}
