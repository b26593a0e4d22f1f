package exporter

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

func over(t *testing.T, network, host string, header http.Header) *http.Request {
	t.Helper()
	var addr net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9480}
	if network == "unix" {
		addr = &net.UnixAddr{Name: "/run/acceld/acceld.sock", Net: "unix"}
	}
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, addr),
		http.MethodGet, "/v1/machine", nil)
	r.Host = host
	for name, values := range header {
		r.Header[name] = values
	}
	return r
}

// TestOwnName: a web page whose name leads here (DNS rebinding), or which asks across origins, gets nothing.
func TestOwnName(t *testing.T) {
	h := New(Options{Machine: func() accel.Machine { return accel.Machine{} }, Hosts: []string{"node-a"}}).Handler()
	for _, c := range []struct {
		network, host, origin string
		want                  int
	}{
		{"tcp", "127.0.0.1:9480", "", 200},
		{"tcp", "[::1]:9480", "", 200},
		{"tcp", "[::1]", "", 200},
		{"tcp", "LOCALHOST:9480", "", 200},
		{"tcp", "localhost.", "", 200},
		{"tcp", "node-a:9480", "", 200},
		{"tcp", "", "", 200},
		{"tcp", "evil.example:9480", "", 421},
		{"tcp", "127.0.0.1.evil.example:9480", "", 421},
		{"tcp", "node-a.evil.example", "", 421},
		{"tcp", "localhost:9480", "http://evil.example", 403},
		{"tcp", "localhost:9480", "null", 403},
		{"tcp", "localhost:9480", "http://localhost:9480", 200},
		{"tcp", "localhost:9480", "http://localhost:1", 403},
		{"unix", "acceld", "", 200},
	} {
		header := http.Header{}
		if c.origin != "" {
			header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, over(t, c.network, c.host, header))
		if w.Code != c.want {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
}

// TestNoSecretOverTCP: what a definition has beyond the names of a kind is for the unix socket, which only root and its
// group may open.
func TestNoSecretOverTCP(t *testing.T) {
	const secret = "hunter2"
	m := accel.Machine{
		Want: accel.Want{Kinds: map[string]*accel.Definition{"x-y": {
			Kind: "x-y", Title: "A card", Resource: "x.org/y",
			Driver: accel.DriverDefinition{Version: "1.2", Sources: []accel.Source{
				{Type: "oci", Proxy: "http://user:" + secret + "@proxy:3128"},
			}},
			Container:  accel.Edits{Env: []string{"TOKEN=" + secret}},
			Partitions: &accel.Partitions{Env: []string{"TOKEN=" + secret}},
		}}},
		Have: map[string]accel.Have{"x-y": {Accelerators: []accel.Accelerator{{
			ID: "0000:01:00.0", Env: []string{"A=" + secret},
			Partitions: []accel.Accelerator{{ID: "p", Env: []string{"A=" + secret}}},
		}}}},
	}
	h := New(Options{Machine: func() accel.Machine { return m }}).Handler()
	for network, want := range map[string]bool{"tcp": false, "unix": true} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, over(t, network, "localhost", nil))
		var got accel.Machine
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(w.Body.String(), secret); has != want {
			t.Errorf("over %s, with the secret: %t", network, has)
		}
		if def := got.Want.Kinds["x-y"]; def == nil || def.Title != "A card" || def.Driver.Version != "1.2" {
			t.Errorf("over %s the kind is %+v", network, def)
		}
	}
	if m.Have["x-y"].Accelerators[0].Partitions[0].Env == nil || m.Want.Kinds["x-y"].Container.Env == nil {
		t.Error("the machine itself was changed")
	}
}
