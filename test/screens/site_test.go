package screens

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// site builds the site, as `make site` does, and serves it.
func site(t *testing.T) (url string) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "tool", "hugo", "--destination", dir, "--noBuildLock")
	build.Dir = filepath.Join("..", "..", "packaging", "site")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	// As on a server that publishes it in a folder.
	s := httptest.NewServer(http.StripPrefix("/acceld/", http.FileServer(http.Dir(dir))))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL + "/acceld/"
}

// TestSite looks at pages of every sort, and searches.
func TestSite(t *testing.T) {
	b, out := open(t)
	url := site(t)
	for name, path := range map[string]string{
		"site-home": "index.html", "site-quickstart": "docs/quickstart-nvidia.html", "site-states": "docs/states.html",
		"site-reasons": "docs/reasons.html", "site-config": "docs/config.html", "site-policies": "docs/policies.html",
		"site-architecture": "architecture.html", "site-search": "search.html?q=headers+missing",
	} {
		look(t, b, out, name, url+path)
	}
	for _, l := range []Look{looks()[0], looks()[2]} {
		if err := b.Open(url+"index.html", l); err != nil {
			t.Fatal(err)
		}
		var ok bool
		if err := b.Eval(`(() => { const q = document.querySelector("input[name=q]"); q.value = "HeadersMissing"; q.form.requestSubmit(); return true; })()`,
			&ok); err != nil {
			t.Fatal(err)
		}
		if err := b.Until(`location.pathname.endsWith("/search.html") && document.querySelectorAll("#results li").length > 0 &&
			document.querySelector("#results mark").textContent.toLowerCase() === "headersmissing"`, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := b.Eval(`(() => { const q = document.getElementById("query"); q.value = "nosuchword"; q.dispatchEvent(new Event("input")); return true; })()`,
			&ok); err != nil {
			t.Fatal(err)
		}
		if err := b.Until(`document.querySelectorAll("#results li").length === 0 &&
			document.getElementById("found").textContent.startsWith("Nothing")`, 10*time.Second); err != nil {
			t.Error(err)
		}
		for _, c := range b.Complaints() {
			t.Errorf("%s: the browser complains: %s", l.Name, c)
		}
	}
}
