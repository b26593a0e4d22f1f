package faults

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// withIOMMU are two accelerators behind root ports, one of which has no Access Control Services.
func withIOMMU() []string {
	return []string{
		"-device", "intel-iommu",
		"-device", "pcie-root-port,id=strict,bus=pcie.0,addr=18.0,chassis=41,slot=41", "-device", "edu,bus=strict",
		"-device", "pcie-root-port,id=plain,bus=pcie.0,addr=19.0,chassis=42,slot=42,disable-acs=true",
		"-device", "edu,bus=plain",
	}
}

// Test34_Peers: the kernel switches Access Control Services on where there is an IOMMU, and the doctor names the ports
// that redirect and the groups that are translated; with the parameters that it advises, it has nothing to say.
func Test34_Peers(t *testing.T) {
	const port = "0000:00:18.0"
	advice := func(cmdline string) (messages, evidence, remedies string) {
		c := light(t, bed.Options{Cmdline: cmdline, Devices: withIOMMU()})
		var findings []struct {
			About, Message, Remedy string
			Evidence               []string
		}
		c.must(json.Unmarshal([]byte(c.sh("acceld doctor -o json || true")), &findings))
		for _, f := range findings {
			if f.About == stage.Kind+" peers" {
				messages, remedies = messages+f.Message+"\n", remedies+f.Remedy+"\n"
				evidence += strings.Join(f.Evidence, "\n") + "\n"
			}
		}
		t.Logf("%q:\n%s%s%s", cmdline, messages, evidence, remedies)
		return messages, evidence, remedies
	}
	messages, evidence, remedies := advice("intel_iommu=on iommu.passthrough=0")
	for _, want := range []string{"Access Control Services of the root ports", "the IOMMU translates"} {
		if !strings.Contains(messages, want) {
			t.Errorf("the doctor does not say %q", want)
		}
	}
	if !strings.Contains(evidence, "port "+port+": ACS control register 0x001d") || strings.Contains(evidence, "port 0000:00:19.0") {
		t.Errorf("evidence:\n%s", evidence)
	}
	if !strings.Contains(remedies, "pci=disable_acs_redir="+port+" ") {
		t.Errorf("remedies:\n%s", remedies)
	}
	if messages, _, _ := advice("intel_iommu=on iommu=pt pci=disable_acs_redir=" + port); messages != "" {
		t.Errorf("with the advised parameters the doctor still says\n%s", messages)
	}
}
