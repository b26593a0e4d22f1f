package seed

import (
	"strings"
	"testing"
)

func TestRenderLeavesNoPlaceholder(t *testing.T) {
	for _, kind := range []Kind{Light, Host, Node} {
		testRender(t, kind, CRIO)
		testRender(t, kind, Containerd)
	}
}

func testRender(t *testing.T, kind Kind, engine Engine) {
	for _, member := range Members() {
		files, err := Render(Values{
			Kind: kind, Engine: engine, Member: member, Registry: "10.0.2.2:5000",
			APIServer: "10.0.2.2:6443",
		})
		if err != nil {
			t.Fatal(err)
		}
		for path, f := range files {
			if strings.Contains(string(f.Content), "{{") {
				t.Errorf("%s: %q keeps a placeholder", kind, path)
			}
			if other := map[Engine]string{CRIO: "containerd", Containerd: "crio"}[engine]; strings.Contains(path,
				"/"+other+".service") {
				t.Errorf("%s with %s: has %q", kind, engine, path)
			}
		}
		if _, there := files["/etc/containerd/certs.d/_default/hosts.toml"]; there != (engine == Containerd) {
			t.Errorf("%s with %s: the way to the registry is there: %v", kind, engine, there)
		}
		if host := string(files["/etc/hostname"].Content); host != member.Hostname+"\n" {
			t.Errorf("%s: is called %q, want %q", kind, host, member.Hostname)
		}
		if _, there := files["/etc/systemd/system/kubelet.service"]; there != (kind == Node) {
			t.Errorf("%s: kubelet's unit present: %v", kind, there)
		}
	}
}
