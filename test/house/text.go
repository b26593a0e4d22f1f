package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// vendorNames looks at identifiers and strings, not at comments: a comment may cite a vendor's document. The names are
// those of the folders under vendors, the PCI ids those of the definitions there, and what is known besides.
func vendorNames(t *Tree) []Finding {
	forbidden := forbiddenNames(t)
	keep := func(s Source) bool { return s.Product() && s.Top() != "vendors" && !vendorProgram(s) }
	return t.inspect(keep, func(s Source, n ast.Node) []Finding {
		var text string
		switch n := n.(type) {
		case *ast.Ident:
			text = n.Name
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return nil
			}
			unquoted, err := strconv.Unquote(n.Value)
			if err != nil {
				return nil
			}
			text = unquoted
		default:
			return nil
		}
		for _, w := range split(text) {
			if forbidden[w] {
				return []Finding{t.find(s, n, "%q is a vendor's", w)}
			}
		}
		return nil
	})
}

// vendorProgram reports whether a source is of a program that calls vendors' libraries for a definition, as its probe
// or its check.
func vendorProgram(s Source) bool {
	return s.Dir() == "cmd/acceld-nvml" || s.Dir() == "cmd/acceld-prove"
}

func forbiddenNames(t *Tree) map[string]bool {
	names := map[string]bool{}
	for _, n := range []string{
		"nvidia", "nouveau", "cuda", "nvml", "amd", "amdgpu", "radeon", "rocm", "intel", "xpu", "i915", "habana",
		"habanalabs", "gaudi", "mellanox", "mlx", "xilinx", "qualcomm", "graphcore", "furiosa", "rebellions",
		"tenstorrent",
		"10de", "1002", "8086", "1da3", "15b3", "10ee", "17cb", "1d95", "1e52",
	} {
		names[n] = true
	}
	pciVendor := regexp.MustCompile(`(?m)\bvendor:\s*["']?([0-9a-f]{4})\b`)
	for _, x := range t.Texts {
		dir, below, ok := strings.Cut(strings.TrimPrefix(x.Path, "vendors/"), "/")
		if top(x.Path) != "vendors" || !ok || below == "" || dir == "testdata" {
			continue
		}
		names[dir] = true
		for _, m := range pciVendor.FindAllSubmatch(x.Bytes, -1) {
			names[string(m[1])] = true
		}
	}
	return names
}

// split cuts an identifier or a string into lower-case words: at everything that is not a letter or digit, and where a
// lower-case letter or digit is followed by an upper-case one.
func split(s string) []string {
	var b strings.Builder
	lower := false
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			r = ' '
		}
		if lower && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		lower = unicode.IsLower(r) || unicode.IsDigit(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}

func licence(t *Tree) []Finding {
	var out []Finding
	if !slices.ContainsFunc(t.Texts, func(x Text) bool { return x.Path == "LICENSE" }) {
		out = append(out, Finding{"LICENSE", 0, "not there"})
	}
	header := regexp.MustCompile(`(?i)SPDX-License-Identifier|licensed under the|copyright \(?c?\)? ?\d{4}`)
	for _, s := range t.Sources {
		for _, c := range s.AST.Comments {
			if c != s.AST.Doc && c.Pos() < s.AST.Package && header.MatchString(c.Text()) {
				out = append(out, t.find(s, c, "licence header"))
			}
		}
	}
	return out
}

// prose is the part of the word list that a pattern can find without a false alarm.
func prose(t *Tree) []Finding {
	join := func(parts ...string) string { return strings.Join(parts, "") }
	re := regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
		join(`an`, `ew`), join(`of bef`, `ore`), join(`(in|out of|takes|leaves) off`, `ice`), join(`by tu`, `rns`),
		join(`(for|by|to) who a`, `sks`), join(`as it is one of th`, `ose`),
	}, "|") + `)\b`)
	var out []Finding
	for _, x := range t.Texts {
		if x.Path == "STYLE.md" {
			continue
		}
		for i, line := range bytes.Split(x.Bytes, []byte("\n")) {
			for _, m := range re.FindAll(line, -1) {
				out = append(out, Finding{x.Path, i + 1, fmt.Sprintf("%q: see the word list of STYLE.md", m)})
			}
		}
	}
	return out
}

// words are written in pieces here, so that this file keeps the rule too.
func words(t *Tree) []Finding {
	join := func(parts ...string) string { return strings.Join(parts, "") }
	patterns := []string{
		join(`(^|[^A-Za-z0-9_.-])/(wo`, `rk|fa`, `rm)/`),
		join(`/tmp/ba`, `sh_jobs`),
		join(`/tmp/br`, `ief`),
		join(`(^|[^A-Za-z0-9_.-])/ho`, `me/[a-z]+/`),
		join(`(proxy|sum)\.gol`, `ang\.org`),
		join(`(deb|security|snapshot)\.deb`, `ian\.org`),
		join(`registry\.np`, `mjs\.org`),
		join(`(^|[^A-Za-z0-9_])fa`, `rm-(bench|studio)`),
		join(`\.lib`, `rary/`),
		join(`(?i)\bcla`, `ude\b`),
		join(`(?i)\banth`, `ropic\b`),
		join(`(?i)\bchat`, `gpt\b`),
		join(`(?i)\bcopi`, `lot\b`),
		join(`(?i)\blanguage mo`, `del\b`),
	}
	re := regexp.MustCompile(strings.Join(patterns, "|"))
	var out []Finding
	for _, x := range t.Texts {
		if path.Ext(x.Path) == ".sum" {
			continue
		}
		for i, line := range bytes.Split(x.Bytes, []byte("\n")) {
			if m := re.Find(line); m != nil {
				out = append(out, Finding{x.Path, i + 1, fmt.Sprintf("%q must not be in the tree", bytes.TrimSpace(m))})
			}
		}
	}
	return out
}

// columns counts what a reader has to follow. What a string holds is one thing to see, and easier to search for in one
// piece.
func columns(t *Tree) []Finding {
	const most, tab = 120, 4
	var out []Finding
	for _, x := range t.Texts {
		if path.Ext(x.Path) != ".go" || strings.Contains(x.Path, "/testdata/") {
			continue
		}
		for i, line := range strings.Split(hollow(x.Bytes), "\n") {
			if n := utf8.RuneCountInString(line) + (tab-1)*strings.Count(line, "\t"); n > most {
				out = append(out, Finding{x.Path, i + 1, fmt.Sprintf("%d columns, at most %d", n, most)})
			}
		}
	}
	return out
}

// hollow returns Go source with nothing but line ends left in its string literals.
func hollow(source []byte) string {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, source, nil, scanner.ScanComments)
	var out strings.Builder
	done := 0
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			out.Write(source[done:])
			return out.String()
		}
		if tok == token.STRING {
			at := file.Offset(pos)
			out.Write(source[done:at])
			out.WriteString(strings.Repeat("\n", strings.Count(text, "\n")))
			done = at + len(text)
		}
	}
}
