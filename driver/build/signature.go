package build

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/driver/trust"
)

// anywhere stands for the headers of a kernel, whose location does not affect what is built.
const anywhere = "/headers"

// signatureFile is the file with the signatures of a source tree, next to the tree: one in base64 on each line.
func signatureFile(tree string) string { return tree + ".sig" }

// statement is what is signed for a source: the content of the tree, by the digest of its copy, how it is built, and
// the arguments for make, which could otherwise replace the compiler.
func statement(tree string, system accel.BuildSystem, arguments []string) []byte {
	out := fmt.Appendf(nil, "acceld source tree v1\nsha256:%s\nsystem %s\n", tree, system)
	for _, a := range arguments {
		out = fmt.Appendf(out, "make %q\n", a)
	}
	return out
}

// signed finds out who signed a source, of those whom the host trusts. If the host requires a signature and there is
// none, the source is refused.
func (b *Builder) signed(j *job, tree string) ([]trust.Signer, *accel.Problem) {
	trusted, problem := trust.Read(b.h, b.o.Trust)
	if problem != nil || trusted.Empty() {
		return nil, problem
	}
	name := signatureFile(j.source.Path)
	lines, err := b.signatures(name)
	if err != nil && b.o.Trust.Require {
		return nil, accel.Problemf(accel.SignatureInvalid,
			"the source %q is not signed, and this host requires a trusted signature (trust.require): %v", j.source.Path, err)
	}
	var out []trust.Signer
	for _, s := range lines {
		out = append(out, trusted.Signed(statement(tree, j.system, j.source.Make), s, nil)...)
	}
	if len(out) == 0 && b.o.Trust.Require {
		return nil, accel.Problemf(accel.SignatureInvalid,
			"no signature in %q is of this source by a key that this host trusts (trust.require; %d looked at): it is of "+
				"another tree, another build system or other arguments for make, or by another key", name, len(lines))
	}
	return out, nil
}

// signatures reads a file of signatures.
func (b *Builder) signatures(name string) ([][]byte, error) {
	const most, lines = 64 << 10, 64
	f, err := b.h.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most || bytes.Count(text, []byte("\n")) > lines {
		return nil, fmt.Errorf("%q has more than %d bytes or %d lines", name, most, lines)
	}
	var out [][]byte
	for all := bufio.NewScanner(bytes.NewReader(text)); all.Scan(); {
		if s, err := base64.StdEncoding.DecodeString(strings.TrimSpace(all.Text())); err == nil && len(s) > 0 {
			out = append(out, s)
		}
	}
	return out, nil
}

// agrees reports whether the arguments for make with the real headers are those that were signed.
func agrees(signed, real []string, headers string) bool {
	return slices.EqualFunc(signed, real, func(s, r string) bool {
		return strings.ReplaceAll(s, anywhere, headers) == r
	})
}

// Sign signs the source of a definition and adds the signature to the file next to the tree, whose name it returns.
func (b *Builder) Sign(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source,
	key *trust.Key,
) (string, *accel.Problem) {
	source, problem := template.Source(def, facts, s, anywhere)
	if problem != nil {
		return "", problem
	}
	w, done, problem := b.store.Workspace("")
	if problem != nil {
		return "", problem
	}
	defer done()
	tree, err := copyTree(ctx, b.h, source.Path, w.Work)
	if err != nil {
		return "", accel.ProblemOr(err, accel.SourceMissing, "cannot read the source %q", source.Path)
	}
	signature, err := key.Sign(statement(tree, b.system(source), source.Make))
	if err != nil {
		return "", accel.Problemf(accel.SigningFailed, "cannot sign the source %q: %v", source.Path, err)
	}
	name := signatureFile(source.Path)
	all, err := b.signatures(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		var text []byte
		for _, s := range append(all, signature) {
			text = append(base64.StdEncoding.AppendEncode(text, s), '\n')
		}
		err = b.h.WriteFile(name, text, 0o644)
	}
	if err != nil {
		return "", accel.ProblemOf(err, "cannot write %q", name)
	}
	return name, nil
}
