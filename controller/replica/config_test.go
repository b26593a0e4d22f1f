package replica

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/acceld/acceld/controller/extender"
)

// TestService: in a pod, the Service points to what the replica serves, at its own address; outside a pod, nothing
// does.
func TestService(t *testing.T) {
	for config, want := range map[string]string{
		"tls: {cert: c, key: k, clientCA: a}\nresources: {prefix: gpu.example.com/, cards: [shares]}\n": "[{scheduler 9443 TCP} {watched 9482 TCP}]",
		"watched: 127.0.0.1:80\n": "[{watched 80 TCP}]",
		"watched: \"off\"\n":      "[]",
	} {
		c, err := ParseConfig([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		o := &Replica{config: c, log: slog.New(slog.DiscardHandler)}
		if c.Resources != nil {
			o.extender = extender.New(c.Resources, extender.API{}, c.Packing, o.log)
		}
		t.Setenv("POD_IP", "")
		if o.service() != nil {
			t.Error("without an address it leads somewhere")
		}
		t.Setenv("POD_IP", "10.1.2.3")
		t.Setenv("POD_NAME", "acceld-controller-x")
		k := o.service()
		if k.Address.String() != "10.1.2.3" || k.Pod != "acceld-controller-x" || k.Namespace != "acceld-system" ||
			fmt.Sprint(k.Ports) != want {
			t.Errorf("%q: %+v", config, k)
		}
	}
}

func TestParseConfig(t *testing.T) {
	const good = "tls: {cert: c, key: k, clientCA: a}\nresources: {prefix: gpu.example.com/, cards: [shares]}\n"
	for text, want := range map[string]string{
		good:                       "",
		"":                         "", // only policies
		"policies: false\n":        "there is nothing to do",
		"resources: {}\n":          `resources: cannot use prefix "": it must be a domain and a slash`,
		good + "policies: false\n": "",
		"resources: {prefix: gpu.example.com/, cards: [shares]}\n":                         "tls: a secret, or cert, key and clientCA, are needed: who may bind pods is known by a certificate only",
		"tls: {cert: c, key: k}\nresources: {prefix: gpu.example.com/, cards: [shares]}\n": "tls: a secret, or cert, key and clientCA, are needed",
		"tls: {secret: s, cert: c, key: k}\nresources: {prefix: a/, cards: [b]}\n":         "tls: a secret and files are named, and only one can hold",
		good + "packing: tight\n":        `packing: "tight" is not one of pack, spread`,
		good + "lease: {seconds: 3}\n":   "lease.seconds: 3 is less than 10",
		good + "lease: {seconds: 301}\n": "lease.seconds: 301 is more than 300",
		good + "cardNodes: -1\n":         "cardNodes: must not be negative",
		good + "colour: red\n":           `unknown field "colour"`,
		"tls: {cert: c, key: k, clientCA: a}\nresources: {prefix: gpu.example.com/}\n":                  "resources: cannot do without a resource that counts cards: cards is empty",
		"tls: {cert: c, key: k, clientCA: a}\nresources: {prefix: a/, cards: [a/b]}\n":                  `resources: cannot use resource "a/b": write it without the prefix, or list its domain in others`,
		"tls: {cert: c, key: k, clientCA: a}\nresources: {prefix: a/, cards: [b], nodeWide: [\"[\"]}\n": `resources: cannot use pattern "[": syntax error in pattern`,
	} {
		got := ""
		if _, err := ParseConfig([]byte(text)); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
