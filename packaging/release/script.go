package main

import (
	"bytes"
	"crypto/ecdsa"
	_ "embed"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

//go:embed install.sh
var scriptText string

// plainURL matches the addresses that the script may have between single quotes.
var plainURL = regexp.MustCompile(`^https?://[A-Za-z0-9.:/_~%-]+$`)

// script writes the installation script of this version, with the public key of whoever signs.
func (o *Options) script(key *ecdsa.PrivateKey) error {
	if o.URL != "" && !plainURL.MatchString(o.URL) {
		return fmt.Errorf("cannot use %q as the place of the release: want http:// or https://", o.URL)
	}
	values := struct{ Version, URL, Key string }{o.Version, strings.TrimSuffix(o.URL, "/"), ""}
	if key != nil {
		text, err := public(key)
		if err != nil {
			return err
		}
		values.Key = string(bytes.TrimSpace(text))
	}
	t, err := template.New(scriptFile).Delims("@<", ">@").Parse(scriptText)
	if err != nil {
		return fmt.Errorf("cannot write the installation script: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, values); err != nil {
		return fmt.Errorf("cannot write the installation script: %w", err)
	}
	return replace(filepath.Join(o.Out, scriptFile), b.Bytes(), 0o755)
}
