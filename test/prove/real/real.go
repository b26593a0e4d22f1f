// Package real has Debian's own libraries, unpacked and not installed, for the true acceld-prove to load: pocl, which
// is OpenCL on processors, and NVIDIA's libcuda. They come from the distribution's archive and stay in the test bed's
// cache; nothing of them is in this repository.
package real

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/test/vm/cache"
)

// recipe is raised when what is made here changes.
const recipe = "1"

// OpenCL returns the root of pocl 3.1, with the loader of OpenCL and what they need beside the C library.
func OpenCL(ctx context.Context) (root string, err error) {
	return packages(ctx, "main",
		"pocl-opencl-icd", "libpocl2", "libpocl2-common", "ocl-icd-libopencl1", "libhwloc15", "libclang-cpp15",
		"libllvm15", "libz3-4", "libedit2", "libbsd0", "libmd0", "libtinfo6", "libxml2", "libicu72", "liblzma5",
		"libffi8", "zlib1g", "libudev1", "libcap2", "libltdl7", "libstdc++6", "libgcc-s1", "libzstd1")
}

// CUDA returns the root of libcuda 535, with nvidia-smi.
func CUDA(ctx context.Context) (root string, err error) {
	return packages(ctx, "main,contrib,non-free", "libcuda1", "libnvidia-ptxjitcompiler1",
		"libnvidia-ml1", "nvidia-smi")
}

// packages unpacks packages of Debian 12, whatever system this is, with the archive's own client and keys. It needs
// root.
func packages(ctx context.Context, components string, names ...string) (string, error) {
	c, err := cache.Open(nil)
	if err != nil {
		return "", err
	}
	dir, err := c.Entry(ctx, "prove-"+names[0], cache.NewKey(recipe, components).Add(names...), func(tmp string) error {
		scratch := filepath.Join(tmp, "scratch")
		download := `mkdir -p "$1/packages" && cd "$1/packages" && ` +
			`APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -q download ` + strings.Join(names, " ") +
			` && for p in *.deb; do dpkg-deb -x "$p" ` + filepath.Join(tmp, "root") + ` || exit; done`
		out, err := exec.CommandContext(ctx, "mmdebstrap", "--variant=extract", "--components="+components,
			"--include=base-files", "--extract-hook="+download, "bookworm", scratch).CombinedOutput()
		if err != nil {
			return fmt.Errorf("cannot unpack %q: %w\n%s", names, err, out[max(0, len(out)-4000):])
		}
		return os.RemoveAll(scratch)
	})
	return filepath.Join(dir, "root"), err
}
