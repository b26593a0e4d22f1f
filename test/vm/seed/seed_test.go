package seed

import (
	"strings"
	"testing"
)

func TestRenderLeavesNoPlaceholder(t *testing.T) {
	for _, kind := range []Kind{Light, Host, Node} {
		files, err := Render(Values{Kind: kind, Registry: "10.0.2.2:5000", APIServer: "10.0.2.2:6443"})
		if err != nil {
			t.Fatal(err)
		}
		for path, f := range files {
			if strings.Contains(string(f.Content), "{{") {
				t.Errorf("%s: %q keeps a placeholder", kind, path)
			}
		}
		if _, there := files["/etc/systemd/system/kubelet.service"]; there != (kind == Node) {
			t.Errorf("%s: kubelet's unit present: %v", kind, there)
		}
	}
}
