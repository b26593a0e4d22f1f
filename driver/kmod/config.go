package kmod

import (
	"path"
	"strings"

	"github.com/acceld/acceld/host"
)

// KernelConfig returns the configuration of the kernel that the headers belong to; empty if there is none.
func KernelConfig(h *host.Host, headers string) string {
	for _, name := range []string{".config", "include/config/auto.conf"} {
		if config, err := h.ReadFile(path.Join(headers, name)); err == nil {
			return string(config)
		}
	}
	return ""
}

// ConfigValue returns the value of one option without quotes; empty if it is not set.
func ConfigValue(config, option string) string {
	_, rest, ok := strings.Cut("\n"+config, "\n"+option+"=")
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strings.Trim(value, `"`)
}
