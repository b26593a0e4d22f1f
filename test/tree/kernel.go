package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kernel returns what a purge must also bring back and that is no file of a disk: the loaded modules with their
// build-id, the parameters of modules (also of those that are built in), the driver, its override and power control of
// each PCI function with a class that accelerators have, the unit files of systemd and which are enabled. Figures that
// change by themselves (use counts, sizes) are left out. Root is "/" but in tests.
func Kernel(root string) string {
	var lines []string
	add := func(pattern string, say func(p string) string) {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return
		}
		for _, m := range matches {
			if text := say(m); text != "" {
				lines = append(lines, strings.TrimPrefix(m, strings.TrimSuffix(root, "/"))+" "+text+"\n")
			}
		}
	}
	read := func(p string) string {
		b, err := os.ReadFile(p)
		if err != nil {
			return ""
		}
		return fmt.Sprintf("%q", strings.TrimSpace(string(b)))
	}
	link := func(p string) string {
		text, err := os.Readlink(p)
		if err != nil {
			return ""
		}
		return "-> " + text
	}
	add("sys/module/*/initstate", read)
	add("sys/module/*/notes/.note.gnu.build-id", content)
	add("sys/module/*/parameters/*", read)
	add("sys/bus/pci/devices/*/driver", link)
	add("sys/bus/pci/devices/*/driver_override", read)
	add("sys/bus/pci/devices/*/power/control", read)
	add("sys/bus/pci/devices/*/sriov_numvfs", read)
	for _, dir := range []string{"etc", "run", "usr/lib"} {
		add(dir+"/systemd/system/*", func(p string) string { return link(p) + " " })
		add(dir+"/systemd/system/*.wants/*", link)
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
