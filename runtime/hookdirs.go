package runtime

import (
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// defaultHookDir is where CRI-O and podman look when nothing is configured. /etc/containers/oci/hooks.d, which their
// manuals mention, is read only when it is listed.
const defaultHookDir = "/usr/share/containers/oci/hooks.d"

// readHookDirs finds the directories that the container runtime reads hooks from, the lowest precedence first; none
// for a runtime that reads no hooks.
func (r *Runtime) readHookDirs() []string {
	switch r.engine.Name {
	case "cri-o":
		if b, err := r.crioConfig(); err == nil {
			if dirs, ok := crioHookDirs(b, nil); ok {
				return dirs
			}
		}
		return r.merge(crioHookDirs, append([]string{"/etc/crio/crio.conf"}, r.walk("/etc/crio/crio.conf.d")...))
	case "podman":
		files := []string{"/usr/share/containers/containers.conf", "/etc/containers/containers.conf"}
		return r.merge(podmanHookDirs, append(files, r.host.Glob("/etc/containers/containers.conf.d", "*.conf")...))
	}
	return nil
}

// merge reads the configuration files in order. Files that are not there or cannot be parsed change nothing: with the
// latter the runtime itself would not start.
func (r *Runtime) merge(read func(data []byte, before []string) ([]string, bool), files []string) []string {
	dirs := []string{defaultHookDir}
	for _, name := range files {
		b, err := r.host.ReadFile(name)
		if err != nil {
			continue
		}
		if d, ok := read(b, dirs); ok {
			dirs = d
		}
	}
	return dirs
}

// walk returns the files below dir in the order in which CRI-O reads them: lexical, recursive, whatever their suffix.
func (r *Runtime) walk(dir string) []string {
	entries, err := r.host.ReadDir(dir)
	if err != nil {
		return nil
	}
	var files []string
	for _, e := range entries {
		if e.IsDir() {
			files = append(files, r.walk(path.Join(dir, e.Name()))...)
		} else {
			files = append(files, path.Join(dir, e.Name()))
		}
	}
	return files
}

func crioHookDirs(data []byte, before []string) ([]string, bool) {
	var c struct {
		Crio struct {
			Runtime struct {
				HooksDir []any `toml:"hooks_dir"`
			} `toml:"runtime"`
		} `toml:"crio"`
	}
	if toml.Unmarshal(data, &c) != nil {
		return nil, false
	}
	return list(c.Crio.Runtime.HooksDir, before)
}

func podmanHookDirs(data []byte, before []string) ([]string, bool) {
	var c struct {
		Engine struct {
			HooksDir []any `toml:"hooks_dir"`
		} `toml:"engine"`
	}
	if toml.Unmarshal(data, &c) != nil {
		return nil, false
	}
	return list(c.Engine.HooksDir, before)
}

// list takes the absolute paths of a configured list; false when the list is not there. An entry {append = true} adds
// to the list before instead of replacing it (containers.conf(5)).
func list(entries []any, before []string) ([]string, bool) {
	if entries == nil {
		return nil, false
	}
	dirs := []string{}
	for _, e := range entries {
		switch e := e.(type) {
		case string:
			if path.IsAbs(e) {
				dirs = append(dirs, path.Clean(e))
			}
		case map[string]any:
			if e["append"] == true {
				dirs = append(append([]string{}, before...), dirs...)
			}
		}
	}
	return dirs, true
}

// crioConfig asks a running CRI-O for its configuration, which knows the command line and other files too.
func (r *Runtime) crioConfig() ([]byte, error) {
	socket := strings.TrimPrefix(r.engine.Endpoint, "unix://")
	if st, err := r.host.Stat(socket); err != nil || st.Mode().Type() != fs.ModeSocket {
		return nil, fs.ErrNotExist
	}
	file, err := r.host.Path(socket)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	client := http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", file)
			},
		},
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://crio/config", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	if resp.StatusCode != http.StatusOK {
		return nil, fs.ErrInvalid
	}
	return io.ReadAll(io.LimitReader(resp.Body, 1<<20))
}
