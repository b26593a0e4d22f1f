package artifact

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// wholeContent is a driver with a library and the link that programs ask for.
func (b *workbench) wholeContent() Content {
	b.write("/store/root/usr/lib64/libedu.so.1.0.0", "the library")
	c := content()
	c.Config.UserSpace = []RootFile{
		{Path: "usr/lib64/libedu.so.1", Link: "libedu.so.1.0.0"},
		{Path: "usr/lib64/libedu.so.1.0.0", SHA256: sum("the library")},
	}
	c.Paths["root/usr/lib64/libedu.so.1.0.0"] = "/store/root/usr/lib64/libedu.so.1.0.0"
	return c
}

// TestWholeArtifact: a bundle takes the user space with the modules, links and all, and who wants only the user space
// gets it; a bundle of modules has none.
func TestWholeArtifact(t *testing.T) {
	b := newWorkbench(t)
	alone := this()
	alone.Root = &Root{Alone: true, File: func(string, string) bool { return false }}
	for file, c := range map[string]Content{"/tmp/whole.tar": b.wholeContent(), "/tmp/modules.tar": content()} {
		if _, problem := b.c.Export(file, []Content{c}, b.empty(), nil); problem != nil {
			t.Fatal(problem)
		}
		whole := len(c.Config.UserSpace) > 0
		for _, want := range []Wanted{this(), alone} {
			dir := b.empty()
			_, problem := b.c.PullBundle(t.Context(), accel.Source{Type: accel.SourceBundle, Path: file}, want, dir)
			if wanted := want.Root != nil && !whole; wanted != (problem != nil) {
				t.Fatalf("%s: %v", file, problem)
			}
			if problem != nil {
				if problem.Reason != accel.ArtifactNotFound {
					t.Error(problem)
				}
				continue
			}
			link, err := os.Readlink(filepath.Join(b.root, dir, "root/usr/lib64/libedu.so.1"))
			text := b.read(dir + "/root/usr/lib64/libedu.so.1.0.0")
			if whole != (err == nil && link == "libedu.so.1.0.0" && text == "the library") ||
				b.read(dir+"/edu.ko") != "the module" {
				t.Errorf("%s: link %q %v, text %q", file, link, err, text)
			}
		}
	}
}

// TestHostileUserSpace: a configuration whose user space leaves its directory, writes through a link or says too much
// is refused.
func TestHostileUserSpace(t *testing.T) {
	file := func(name string) RootFile { return RootFile{Path: name, SHA256: sum("x")} }
	many := make([]RootFile, linkLimit+1)
	for name, files := range map[string][]RootFile{
		"up":             {file("../etc/passwd")},
		"absolute":       {file("/etc/passwd")},
		"twice":          {file("usr/bin/a"), file("usr/bin/a")},
		"neither":        {{Path: "usr/bin/a"}},
		"both":           {{Path: "usr/bin/a", Link: "b", SHA256: sum("x")}},
		"link up":        {{Path: "usr/lib64/a", Link: ".."}},
		"link elsewhere": {{Path: "usr/lib64/a", Link: "../b"}},
		"absolute link":  {{Path: "usr/lib64/a", Link: "/etc"}},
		"through a link": {{Path: "usr/lib64", Link: "etc"}, file("usr/lib64/passwd")},
		"long":           {file(strings.Repeat("a/", pathLimit) + "a")},
		"many":           many,
	} {
		c := content().Config
		c.UserSpace = files
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseConfig(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	c := content().Config
	c.UserSpace = []RootFile{file("usr/lib64/liba.so.1.2"), {Path: "usr/lib64/liba.so.1", Link: "liba.so.1.2"}}
	text, err := json.Marshal(c)
	if err == nil {
		_, err = parseConfig(text)
	}
	if err != nil {
		t.Error(err)
	}
}
