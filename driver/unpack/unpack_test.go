package unpack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// bench is a host with an empty directory /out beside a secret.
type bench struct {
	testing.TB
	h    *host.Host
	root string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"out", "etc"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, h, root}
}

// there lists what is below /out: the text of files, with a star if they may be executed, and the text of links.
func (b *bench) there() map[string]string {
	b.Helper()
	out := map[string]string{}
	top := filepath.Join(b.root, "out")
	err := filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(top, name)
		if e.Type()&fs.ModeSymlink != 0 {
			text, err := os.Readlink(name)
			out[rel] = "-> " + text
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		out[rel] = string(text)
		switch st.Mode() {
		case 0o755:
			out[rel] += " *"
		case 0o644:
		default:
			out[rel] += " " + st.Mode().String()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// untouched fails if something outside of /out has changed.
func (b *bench) untouched() {
	b.Helper()
	for dir, want := range map[string]int{".": 2, "etc": 1} {
		entries, err := os.ReadDir(filepath.Join(b.root, dir))
		if err != nil || len(entries) != want {
			b.Errorf("%q has %d entries: %v", dir, len(entries), err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(b.root, "etc/secret")); string(text) != "secret" {
		b.Errorf("the secret is %q: %v", text, err)
	}
}

// one is an entry of an archive.
type one struct {
	name, text string
	mode       int64
	kind       byte
	link       string
}

func file(name, text string) one { return one{name: name, text: text, mode: 0o644, kind: tar.TypeReg} }

func link(name, to string) one { return one{name: name, mode: 0o777, kind: tar.TypeSymlink, link: to} }

// tarred makes a tar archive.
func tarred(all ...one) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range all {
		err := w.WriteHeader(&tar.Header{
			Typeflag: e.kind, Name: e.name, Linkname: e.link, Mode: e.mode, Size: int64(len(e.text)),
		})
		if err == nil {
			_, err = io.WriteString(w, e.text)
		}
		if err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// cpioed makes a cpio archive; names with an equal inode are hard links.
func cpioed(all ...one) []byte {
	var out bytes.Buffer
	put := func(inode int, mode, names int64, name, text string) {
		fmt.Fprintf(&out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", inode, mode, 0, 0, names, 0,
			len(text), 0, 0, 0, 0, len(name)+1, 0)
		out.WriteString(name + "\x00")
		out.Write(make([]byte, padding(int64(out.Len()))))
		out.WriteString(text)
		out.Write(make([]byte, padding(int64(out.Len()))))
	}
	for i, e := range all {
		switch e.kind {
		case tar.TypeSymlink:
			put(i, modeLink|e.mode, 1, e.name, e.link)
		case tar.TypeDir:
			put(i, modeDir|e.mode, 2, e.name, "")
		case tar.TypeLink: // the names of one inode, the content with the last
			names := append(strings.Fields(e.link), e.name)
			for j, n := range names {
				text := ""
				if j == len(names)-1 {
					text = e.text
				}
				put(i, modeReg|e.mode, int64(len(names)), n, text)
			}
		case tar.TypeReg:
			put(i, modeReg|e.mode, 1, e.name, e.text)
		default:
			put(i, 0o020000|e.mode, 1, e.name, "")
		}
	}
	put(0, 0, 1, cpioTrailer, "")
	return out.Bytes()
}

// arred makes an ar archive of names and contents.
func arred(all ...string) []byte {
	out := bytes.NewBufferString(arMagic)
	for i := 0; i < len(all); i += 2 {
		fmt.Fprintf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", all[i], 0, 0, 0, "100644", len(all[i+1]), all[i+1])
		if len(all[i+1])%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

// deb makes a deb with the files.
func deb(all ...one) []byte {
	return arred(debVersion, "2.0\n", "control.tar.gz", string(pack("gzip", tarred(file("./control",
		"Package: x\nVersion: 1\nArchitecture: all\n")))), "data.tar.xz", string(pack("xz", tarred(all...))))
}

// pack compresses.
func pack(how string, content []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch how {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "zstd":
		w, err = zstd.NewWriter(&out)
	case "xz":
		w, err = xz.NewWriter(&out)
	case "lzma":
		w, err = lzma.NewWriter(&out)
	default:
		return content
	}
	if err == nil {
		_, err = w.Write(content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// small bounds what a test may write.
func small() Bounds { return Bounds{Bytes: 1 << 20, Files: 100} }

// TestFormats: what an archive holds is the same in each format and compression.
func TestFormats(t *testing.T) {
	all := []one{
		{name: "./usr/bin/", kind: tar.TypeDir, mode: 0o755},
		{
			name: "./usr/bin/x", text: "a program", mode: 0o755, kind: tar.TypeReg,
		},
		file("./usr/lib/libx.so.1.2", "a library"), link("./usr/lib/libx.so.1", "libx.so.1.2"),
		file("./usr/share/doc/x/copyright", "a licence"),
	}
	rooted := slices.Clone(all)
	for i := range rooted {
		rooted[i].name = strings.TrimPrefix(rooted[i].name, ".")
	}
	want := map[string]string{
		"usr/bin/x": "a program *", "usr/lib/libx.so.1.2": "a library", "usr/lib/libx.so.1": "-> libx.so.1.2",
		"usr/share/doc/x/copyright": "a licence",
	}
	for name, c := range map[string]struct {
		format Format
		bytes  []byte
	}{
		"tar":      {Tar, tarred(all...)},
		"tar.gz":   {Tar, pack("gzip", tarred(all...))},
		"tar.xz":   {Tar, pack("xz", tarred(all...))},
		"tar.zst":  {Tar, pack("zstd", tarred(all...))},
		"tar.lzma": {Tar, pack("lzma", tarred(all...))},
		"cpio":     {CPIO, cpioed(all...)},
		"cpio.gz":  {CPIO, pack("gzip", cpioed(rooted...))},
		"cpio.zst": {CPIO, pack("zstd", cpioed(all...))},
		"deb":      {DEB, deb(all...)},
	} {
		b := newBench(t)
		tree, problem := Into(t.Context(), b.h, "/out", bytes.NewReader(c.bytes), c.format, small())
		if problem != nil {
			t.Errorf("%s: %v", name, problem)
			continue
		}
		if diff := cmp.Diff(want, b.there()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if len(tree.Files) != 4 || tree.Bytes != 27 || len(tree.Left) != 0 || tree.Files[1].Link != "libx.so.1.2" {
			t.Errorf("%s: %+v", name, tree)
		}
	}
}

// TestLinks: only links that lead to something in the tree are kept, absolute ones as relative ones.
func TestLinks(t *testing.T) {
	b := newBench(t)
	tree, problem := Into(t.Context(), b.h, "/out", bytes.NewReader(tarred(
		file("usr/lib/x.so.1", "x"),
		link("usr/lib/absolute.so", "/usr/lib/x.so.1"),
		link("usr/lib/up.so", "../../usr/lib/x.so.1"),
		link("usr/lib/chain.so", "absolute.so"),
		link("lib", "usr/lib"),
		link("through.so", "lib/x.so.1"),
		link("usr/lib/outside", "../../../etc/secret"),
		link("usr/lib/far", "/etc/secret"),
		link("usr/lib/detour", "../../../out/usr/lib/x.so.1"),
		link("usr/lib/gone", "nothing"),
		link("a", "b"), link("b", "a"),
		link("below/c", "../through.so"),
		link("usr", "/etc"), // stands in the place of a directory
		link("deep", "below/../usr/lib/x.so.1"),
		one{name: "hard", kind: tar.TypeLink, link: "./usr/lib/x.so.1"},
		one{name: "stray", kind: tar.TypeLink, link: "/etc/secret"},
		one{name: "disk", kind: tar.TypeBlock}, one{name: "tty", kind: tar.TypeChar},
		one{name: "pipe", kind: tar.TypeFifo},
		one{name: "bin/su", text: "s", mode: 0o4755, kind: tar.TypeReg},
	)), Tar, small())
	if problem != nil {
		t.Fatal(problem)
	}
	b.untouched()
	if diff := cmp.Diff(map[string]string{
		"usr/lib/x.so.1": "x", "usr/lib/absolute.so": "-> x.so.1", "usr/lib/up.so": "-> ../../usr/lib/x.so.1",
		"usr/lib/chain.so": "-> absolute.so", "lib": "-> usr/lib", "through.so": "-> lib/x.so.1",
		"below/c": "-> ../through.so", "deep": "-> below/../usr/lib/x.so.1", "hard": "x", "bin/su": "s *",
	}, b.there()); diff != "" {
		t.Error(diff)
	}
	left := map[string]string{}
	for _, l := range tree.Left {
		left[l.Path] = l.Why
	}
	if diff := cmp.Diff(map[string]string{
		"usr/lib/outside": "a link to something outside", "usr/lib/far": "a link to something that is not there",
		"usr/lib/detour": "a link to something outside", "usr/lib/gone": "a link to something that is not there",
		"a": "a link to itself", "b": "a link to itself", "usr": "a link to something that is not there",
		"stray": "a hard link to a file that is not there", "disk": "a device node", "tty": "a device node",
		"pipe": "a named pipe", "bin/su": "its set-user-ID, set-group-ID or sticky bit",
	}, left); diff != "" {
		t.Error(diff)
	}
	for _, f := range tree.Files { // what the tree says is what is there
		if _, err := os.Stat(filepath.Join(b.root, "out", f.Path)); err != nil {
			t.Error(err)
		}
	}
}

// TestHardLinksOfCPIO: all names of a file have its content, which comes with the last of them.
func TestHardLinksOfCPIO(t *testing.T) {
	b := newBench(t)
	_, problem := Into(t.Context(), b.h, "/out", bytes.NewReader(cpioed(
		one{name: "c", link: "a b", text: "one", mode: 0o644, kind: tar.TypeLink},
		one{name: "e", link: "d", mode: 0o644, kind: tar.TypeLink}, file("f", "six"),
	)), CPIO, small())
	want := map[string]string{"a": "one", "b": "one", "c": "one", "d": "", "e": "", "f": "six"}
	if diff := cmp.Diff(want, b.there()); problem != nil || diff != "" {
		t.Error(problem, diff)
	}
}

// TestHostile: nothing of a hostile archive is outside of the directory or beyond the bounds, and it is blamed.
func TestHostile(t *testing.T) {
	bomb := file("bomb", strings.Repeat("\x00", 2<<20))
	var many []one
	for i := range 101 {
		many = append(many, file(fmt.Sprint(i), ""))
	}
	deep := strings.Repeat("d/", 70) + "x"
	var wide []one
	for i := range 40 {
		wide = append(wide, file(fmt.Sprintf("%d/a/b/c/x", i), ""))
	}
	var copies []one
	copies = append(copies, file("x", strings.Repeat("x", 300<<10)))
	for i := range 5 {
		copies = append(copies, one{name: fmt.Sprint(i), kind: tar.TypeLink, link: "x"})
	}
	whole := deb(file("x", "x"))
	for name, c := range map[string]struct {
		format Format
		bytes  []byte
	}{
		"up":                   {Tar, tarred(file("../x", "x"))},
		"up below":             {Tar, tarred(file("a/../../x", "x"))},
		"absolute":             {Tar, tarred(file("/etc/secret", "x"))},
		"unclean":              {Tar, tarred(file("a//b", "x"))},
		"cpio up":              {CPIO, cpioed(file("../x", "x"))},
		"cpio absolute":        {CPIO, cpioed(file("//etc/secret", "x"))},
		"deb up":               {DEB, deb(file("../x", "x"))},
		"through a link":       {Tar, tarred(link("a", "/etc"), file("a", "x"))},
		"a file below a file":  {Tar, tarred(file("a", "x"), file("a/b", "x"))},
		"a file twice":         {Tar, tarred(file("a", "x"), file("a", "y"))},
		"a link twice":         {Tar, tarred(link("a", "x"), link("a", "y"))},
		"bomb":                 {Tar, pack("gzip", tarred(bomb))},
		"bomb in xz":           {Tar, pack("xz", tarred(bomb))},
		"bomb in cpio":         {CPIO, pack("zstd", cpioed(bomb))},
		"bomb in deb":          {DEB, deb(bomb)},
		"copies":               {Tar, tarred(copies...)},
		"many files":           {Tar, tarred(many...)},
		"many files in cpio":   {CPIO, cpioed(many...)},
		"many directories":     {Tar, tarred(wide...)},
		"deep":                 {Tar, tarred(file(deep, "x"))},
		"truncated":            {Tar, tarred(file("x", strings.Repeat("x", 5000)))[:3000]},
		"truncated gzip":       {Tar, pack("gzip", tarred(file("x", "x")))[:40]},
		"truncated cpio":       {CPIO, cpioed(file("x", "x"))[:130]},
		"cpio without an end":  {CPIO, cpioed(file("x", "x"))[:116]},
		"truncated deb":        {DEB, whole[:len(whole)-30]},
		"deb without data":     {DEB, arred(debVersion, "2.0\n", "control.tar", string(tarred(file("control", "x"))))},
		"deb without control":  {DEB, arred(debVersion, "2.0\n", "data.tar", string(tarred()))},
		"deb that is another":  {DEB, arred("x", "y")},
		"no deb":               {DEB, []byte("no")},
		"no cpio":              {CPIO, bytes.Repeat([]byte("no"), 100)},
		"no tar":               {Tar, bytes.Repeat([]byte("no"), 1000)},
		"a dictionary of 4 GB": {Tar, append([]byte("\x5d\x00\x00\xff\xff"), bytes.Repeat([]byte{0xff}, 100)...)},
		"sparse": {Tar, func() []byte {
			var out bytes.Buffer
			w := tar.NewWriter(&out)
			if err := w.WriteHeader(&tar.Header{
				Typeflag: tar.TypeReg, Name: "x", PAXRecords: map[string]string{"ACCELD.x": "y"},
			}); err != nil {
				t.Fatal(err)
			}
			return bytes.Replace(out.Bytes(), []byte("ACCELD.x=y"), []byte("GNU.sparse"), 1)
		}()},
	} {
		b := newBench(t)
		tree, problem := Into(t.Context(), b.h, "/out", bytes.NewReader(c.bytes), c.format, small())
		if problem == nil || problem.Reason != accel.ArtifactInvalid {
			t.Errorf("%s: %v, %+v", name, problem, tree)
		}
		b.untouched()
		total := 0
		for _, text := range b.there() {
			total += len(text)
		}
		if int64(total) > small().Bytes+100 {
			t.Errorf("%s: %d bytes were written", name, total)
		}
	}
}

// TestSharedFiles: archives may bring the same file, and links into each other, but no file with other content.
func TestSharedFiles(t *testing.T) {
	b := newBench(t)
	x := New(t.Context(), b.h, "/out", small())
	for _, all := range [][]byte{
		tarred(file("doc", "same"), link("lib/x.so", "x.so.1")), tarred(file("doc", "same"), file("lib/x.so.1", "x")),
	} {
		if problem := x.Add(bytes.NewReader(all), Tar); problem != nil {
			t.Fatal(problem)
		}
	}
	if problem := x.Add(bytes.NewReader(tarred(file("doc", "other"))), Tar); problem == nil ||
		problem.Reason != accel.ArtifactInvalid {
		t.Errorf("another file: %v", problem)
	}
	_, problem := x.Finish()
	want := map[string]string{"doc": "same", "lib/x.so.1": "x", "lib/x.so": "-> x.so.1"}
	if diff := cmp.Diff(want, b.there()); problem != nil || diff != "" {
		t.Error(problem, diff)
	}
}

// TestBytesWritten: not one byte more is written than allowed, and nothing of a file whose header alone says too much.
func TestBytesWritten(t *testing.T) {
	const limit = 100_000
	for name, c := range map[string]struct {
		sizes []int
		good  bool
	}{
		"as many as allowed":         {[]int{limit}, true},
		"in two files":               {[]int{limit / 2, limit / 2}, true},
		"one more":                   {[]int{limit + 1}, false},
		"one more in the third file": {[]int{limit / 2, limit / 2, 1}, false},
	} {
		for how, add := range map[string]func(*Extraction, []byte) error{
			"tree": func(x *Extraction, raw []byte) error {
				if problem := x.Add(bytes.NewReader(raw), Tar); problem != nil {
					return problem
				}
				return nil
			},
			"write": func(x *Extraction, raw []byte) error {
				return x.Each(bytes.NewReader(raw), func(h *tar.Header, name string, r io.Reader) error {
					_, err := x.Write(name, h.Size, r)
					return err
				})
			},
		} {
			b := newBench(t)
			x := New(t.Context(), b.h, "/out", Bounds{Bytes: 1 << 20, Files: 16})
			x.room = limit
			var files []one
			for i, size := range c.sizes {
				files = append(files, file(fmt.Sprint(i), strings.Repeat("x", size)))
			}
			err := add(x, tarred(files...))
			if c.good != (err == nil) || err != nil && accel.AsProblem(err).Reason != accel.ArtifactInvalid {
				t.Errorf("%s, %s: %v", name, how, err)
			}
			size := 0
			for _, text := range b.there() {
				size += len(text)
			}
			if size > limit+100 || len(c.sizes) == 1 && !c.good && size > 0 {
				t.Errorf("%s, %s: %d bytes were written", name, how, size)
			}
		}
	}
}

// TestCalledOff: unpacking ends with its context, and blames nobody.
func TestCalledOff(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, problem := Into(ctx, b.h, "/out", bytes.NewReader(tarred(file("x", "x"))), Tar, small())
	if problem == nil || problem.Reason != accel.InternalError || len(b.there()) > 0 {
		t.Error(problem, b.there())
	}
}
