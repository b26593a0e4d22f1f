package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Names of what seals a release.
const (
	sumsFile       = "SHA256SUMS"
	signatureFile  = "SHA256SUMS.sig"
	provenanceFile = "provenance.json"
	scriptFile     = "install.sh"
)

// readKey reads the key that signs: ECDSA on P-256, in PEM, as PKCS #8 or SEC 1. Without a file there is none. What is
// in the file is in no error.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key that signs: %w", err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "EC PRIVATE KEY":
			if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
				return onP256(path, key)
			}
		case "PRIVATE KEY":
			if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				if key, ok := key.(*ecdsa.PrivateKey); ok {
					return onP256(path, key)
				}
			}
		}
	}
	return nil, fmt.Errorf("cannot sign with %q: it has no ECDSA key without a password, in PEM", path)
}

func onP256(path string, key *ecdsa.PrivateKey) (*ecdsa.PrivateKey, error) {
	if key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("cannot sign with %q: the key is not on the curve P-256", path)
	}
	return key, nil
}

// public returns the public key in PEM.
func public(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("cannot write the public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// seal writes where the artifacts come from and their checksums, and signs the checksums. `sha256sum -c` reads the
// checksums; `openssl dgst -sha256 -verify` and `cosign verify-blob` read the signature.
func (o *Options) seal(key *ecdsa.PrivateKey) error {
	for _, name := range []string{sumsFile, signatureFile, provenanceFile} {
		if err := os.Remove(filepath.Join(o.Out, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot write the release: %w", err)
		}
	}
	artifacts, err := o.sums()
	if err != nil {
		return err
	}
	if err := o.provenance(artifacts); err != nil {
		return err
	}
	if artifacts, err = o.sums(); err != nil { // with the provenance
		return err
	}
	var sums bytes.Buffer
	for _, a := range artifacts {
		fmt.Fprintf(&sums, "%s  %s\n", a.Digest["sha256"], a.Name)
	}
	if err := replace(filepath.Join(o.Out, sumsFile), sums.Bytes(), 0o644); err != nil {
		return err
	}
	if key == nil {
		return nil
	}
	digest := sha256.Sum256(sums.Bytes())
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		return fmt.Errorf("cannot sign the checksums: %w", err)
	}
	text := base64.StdEncoding.EncodeToString(signature) + "\n"
	return replace(filepath.Join(o.Out, signatureFile), []byte(text), 0o644)
}

// artifact is a subject of the provenance (in-toto Attestation Framework, ResourceDescriptor).
type artifact struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

// sums returns the checksum of each file of the release, sorted by name.
func (o *Options) sums() (all []artifact, err error) {
	entries, err := os.ReadDir(o.Out)
	if err != nil {
		return nil, fmt.Errorf("cannot list the release: %w", err)
	}
	for _, e := range entries {
		if e.Name() == sumsFile || e.Name() == signatureFile {
			continue
		}
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			return nil, fmt.Errorf("cannot publish %q: it is no file of a release", filepath.Join(o.Out, e.Name()))
		}
		sum, err := sumOf(filepath.Join(o.Out, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, artifact{Name: e.Name(), Digest: map[string]string{"sha256": sum}})
	}
	return all, nil
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot sum the release: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("cannot sum %q: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// buildType names how the artifacts are made: the target `release` of the Makefile.
const buildType = "https://github.com/acceld/acceld/blob/main/docs/release.md"

// provenance writes from which commit the artifacts were made and how (slsa.dev/spec/v1.0/provenance). It names nobody
// as the builder who has not signed: it says what was built, and the signature of the checksums says who vouches.
func (o *Options) provenance(artifacts []artifact) error {
	statement := map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": artifacts,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          buildType,
				"externalParameters": map[string]any{"target": "release", "version": o.Version},
				"resolvedDependencies": []artifact{{
					URI: "git+" + o.Source, Digest: map[string]string{"gitCommit": o.Revision},
				}},
			},
			"runDetails": map[string]any{"builder": map[string]any{"id": buildType + "#make-release"}},
		},
	}
	text, err := json.MarshalIndent(statement, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the provenance: %w", err)
	}
	return replace(filepath.Join(o.Out, provenanceFile), append(text, '\n'), 0o644)
}
