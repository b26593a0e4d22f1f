package detect

import (
	"testing"

	"github.com/acceld/acceld/host/hosttest"
)

// TestModulesAttribute: next to the modules, kernels that decompress modules have an attribute (Linux 5.17 on).
func TestModulesAttribute(t *testing.T) {
	m := hosttest.New(t)
	m.Modprobe(hosttest.Driver{Module: "npu"})
	m.File("/sys/module/compression", "zstd\n")
	modules, problems := Modules(m.Host)
	if len(modules) != 1 || modules[0].Name != "npu" || len(problems) > 0 {
		t.Errorf("%+v %v", modules, problems)
	}
}
