package cli

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// planted returns secrets in every form and place in which one could get into a report, with the text that must stay.
func planted() []struct{ name, text, secret, stays string } {
	const (
		pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq4Vd1k\nq8mN0Zx3yW5uPlantedKey==\n-----END RSA PRIVATE KEY-----"
		jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6IlgifQ.eyJpc3MiOiJrdWJlcm5ldGVzL3NlcnZpY2VhY2NvdW50In0.c2lnbmF0dXJlLXBsYW50ZWQ"
	)
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	return []struct{ name, text, secret, stays string }{
		{
			"key in PEM", "sign:\n  " + strings.ReplaceAll(pem, "\n", "\n  ") + "\nhash: sha256", "PlantedKey",
			"hash: sha256",
		},
		{
			"certificate in PEM",
			"ca: |\n-----BEGIN CERTIFICATE-----\nMIIDplanted\n-----END CERTIFICATE-----\nnode: gpu-17", "MIIDplanted",
			"node: gpu-17",
		},
		{
			"PEM in JSON", `{"message": ` + quoted(pem) + `, "reason": "KeyUnknown"}`, "PlantedKey",
			`"reason": "KeyUnknown"`,
		},
		{
			"PEM without an end", "log\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEplanted\nq8mNplanted\n\nnext line",
			"planted", "next line",
		},
		{
			"token of a service account", "the API server says: invalid bearer token " + jwt + " (401)", "c2lnbmF0dXJl",
			"the API server says",
		},
		{"header", "GET /v2/ Authorization: Bearer abcdefgh12345678 answered 403", "abcdefgh12345678", "answered 403"},
		{"basic header", "Authorization: Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy", "Authorization"},
		{
			"proxy with a password", "proxy: http://svc:hunter2hunter2@proxy.example:3128", "hunter2hunter2",
			"@proxy.example:3128",
		},
		{
			"proxy in a message", `Get "https://user:p%40ss@registry.example/v2/": dial tcp: timeout`, "p%40ss",
			"registry.example/v2/",
		},
		{"YAML", "kubernetes:\n  password: hunter2 and more\n  node: gpu-17", "hunter2 and more", "node: gpu-17"},
		{"quoted YAML", "registry-token: 'hunter2-quoted'\nnode: gpu-17", "hunter2-quoted", "node: gpu-17"},
		{"YAML block", "password: |\n  hunter2-block\n  and-more\nnode: gpu-17", "hunter2-block", "node: gpu-17"},
		{"flow YAML", "auth: {user: svc, password: hunter2flow}", "hunter2flow", "user: svc"},
		{"password that begins as a path", "password: /hunter2slash", "hunter2slash", "password"},
		{
			"JSON", `{"auths": {"registry.example": {"auth": "c3ZjOnBsYW50ZWQ="}}, "node": "gpu-17"}`,
			"c3ZjOnBsYW50ZWQ=",
			`"node": "gpu-17"`,
		},
		{
			"JSON with an escaped quote", `{"password": "hunt\"er2rest", "node": "gpu-17"}`, "er2rest",
			`"node": "gpu-17"`,
		},
		{
			"JSON in JSON", `{"message": "cannot use {\"identitytoken\": \"hunter2inner\"}: no", "node": "gpu-17"}`,
			"hunter2inner", `"node": "gpu-17"`,
		},
		{
			"kubeconfig",
			"users:\n- user:\n    client-key-data: LS0tLS1CRUdJTiBwbGFudGVk\n    token: planted.token.x\n- name: kubelet",
			"LS0tLS1CRUdJTiBwbGFudGVk", "name: kubelet",
		},
		{"environment", "REGISTRY_PASSWORD=hunter2env NODE_NAME=gpu-17", "hunter2env", "NODE_NAME=gpu-17"},
		{
			"command line", "kubelet --token hunter2flag --root-dir=/var/lib/kubelet", "hunter2flag",
			"--root-dir=/var/lib/kubelet",
		},
		{"command line with =", "kubelet --bootstrap-token=hunter2flag --v=2", "hunter2flag", "--v=2"},
		{"bootstrap token", "joined with abcdef.0123456789abcdef at 10:00", "0123456789abcdef", "at 10:00"},
		{"cloud key", "AKIAIOSFODNN7EXAMPLE in region eu-1", "AKIAIOSFODNN7EXAMPLE", "region eu-1"},
		{
			"forge token", "clone with ghp_abcdefghijklmnopqrstuvwxyz0123456789 failed",
			"ghp_abcdefghijklmnopqrstuvwxyz",
			"failed",
		},
		{
			"drawn by chance", "the driver says q8mN0Zx3yW5uT7kR2pL9sD4fG6hJ1aVbXc and stops", "q8mN0Zx3yW5uT7kR2pL9",
			"and stops",
		},
		{
			"short names", "db-pass: hunter2short1\ndbPass=hunter2short2\n{\"pass\": \"hunter2short3\"}\ngpu-17",
			"hunter2short", "gpu-17",
		},
		{"kernel log", "[    1.2] <6> npu: firmware password=hunter2kmsg accepted", "hunter2kmsg", "accepted"},
	}
}

func TestRedaction(t *testing.T) {
	for _, c := range planted() {
		t.Run(c.name, func(t *testing.T) {
			got := (&redactor{}).text(c.text)
			if strings.Contains(got, c.secret) {
				t.Errorf("%q is in %q", c.secret, got)
			}
			if !strings.Contains(got, c.stays) || !strings.Contains(got, "[redacted") {
				t.Errorf("of %q nothing is left: %q", c.stays, got)
			}
		})
	}
}

// TestReportRendered: all of them in one report, where they could interfere with each other.
func TestReportRendered(t *testing.T) {
	var sections []section
	for _, c := range planted() {
		sections = append(sections, section{c.name, c.text},
			section{c.name + " as JSON", asText(map[string]string{"message": c.text})})
	}
	got := render(&redactor{}, sections)
	for _, c := range planted() {
		if strings.Contains(got, c.secret) {
			t.Errorf("%s: %q is in the report", c.name, c.secret)
		}
		if !strings.Contains(got, "==== "+c.name+" ====") {
			t.Errorf("the section %s is lost", c.name)
		}
	}
}

// TestKnownSecrets: the host's own credentials are found anywhere, whatever they look like.
func TestKnownSecrets(t *testing.T) {
	var r redactor
	r.learns([]byte(`{"auths": {"registry.example": {"auth": "` +
		base64.StdEncoding.EncodeToString([]byte("svc:correct horse")) + `"}}}`))
	r.learns([]byte("users:\n- user:\n    token: plain-words-here\n    client-key: /etc/kubernetes/pki/key.pem\n"))
	r.learns([]byte("only-a-token\n"))
	r.knows("short", "a\"quote and more")
	got := r.text(
		`the registry says "correct horse", svc, plain-words-here, only-a-token, a short way, /etc/kubernetes/pki/key.pem, a\"quote and more`)
	for _, secret := range []string{"correct horse", "plain-words-here", "only-a-token", "quote and more"} {
		if strings.Contains(got, secret) {
			t.Errorf("%q is in %q", secret, got)
		}
	}
	if !strings.Contains(got, "a short way, /etc/kubernetes/pki/key.pem") {
		t.Errorf("too much is gone: %q", got)
	}
}

// TestSecretInASecret: if a secret contains another one, such as a password that was extended, no part of it is left,
// whichever is learned first.
func TestSecretInASecret(t *testing.T) {
	for _, longer := range []string{"plain-words-and-more", "more-plain-words", "more-plain-words-still"} {
		for _, order := range [][]string{{"plain-words", longer}, {longer, "plain-words"}} {
			var r redactor
			for _, secret := range order {
				r.learns([]byte(secret))
			}
			if got, want := r.text("the registry refuses "+longer+", and plain-words too"),
				"the registry refuses [redacted], and [redacted] too"; got != want {
				t.Errorf("with %q: %q, want %q", order, got, want)
			}
		}
	}
}

// TestKept: the information that a report is for stays in it.
func TestKept(t *testing.T) {
	for _, text := range []string{
		"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"buildID 8c1f5d7e9a3b2c4d6e8f0a1b2c3d4e5f60718293",
		"/var/lib/acceld/kmod/6.1.0-47-amd64/qemu-edu/0f1e2d3c4b5a69788796a5b4c3d2e1f0/edu.ko",
		"0000:18:00.0", "gpu-17.example.com", "render-7c9d8b5f6d-x2x5q", "linux-headers-6.1.0-47-amd64",
		"credentials: /etc/acceld/config.json", "keys: [/etc/acceld/drivers.pub]",
		"sign: {key: /etc/acceld/mok.key, certificate: /etc/acceld/mok.pem, hash: sha256}",
		`"bootID": "6f1f0a53-0f5b-4c52-9d3e-0f6a2f9c7c11"`,
		"accelerator_ecc_uncorrected_errors_total{accelerator_id=\"0000:18:00.0\"} 0",
		"GPU-5fd4f087-86f3-7a43-b711-4771313afc50", "image: registry.example/drivers/{{.HardwareResource}}",
		"[    0.257788] <6> Speculative Store Bypass: Mitigation: disabled via prctl",
		"[    3.1] <6> audit: type=2000 audit(1.0:1): state=initialized audit_enabled=0",
		"#1 SMP PREEMPT_DYNAMIC Debian 6.1.147-1 (2025-08-02)",
	} {
		if got := (&redactor{}).text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func FuzzRedaction(f *testing.F) {
	for _, c := range planted() {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const secret = "hunter2-is-known"
		r := redactor{known: []string{secret}}
		if got := render(&r, []section{{"x", text + secret + text}}); strings.Contains(got, secret) {
			t.Errorf("%q", got)
		}
	})
}
