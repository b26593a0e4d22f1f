package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// The parts of SPDX 2.3 (spdx.github.io/spdx-spec/v2.3) that are used here.
type document struct {
	Version       string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []component    `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type component struct {
	ID        string      `json:"SPDXID"`
	Name      string      `json:"name"`
	Version   string      `json:"versionInfo,omitempty"`
	Location  string      `json:"downloadLocation"`
	Analyzed  bool        `json:"filesAnalyzed"`
	License   string      `json:"licenseDeclared"`
	Copyright string      `json:"copyrightText"`
	Purpose   string      `json:"primaryPackagePurpose"`
	Checksums []checksum  `json:"checksums,omitempty"`
	Refs      []reference `json:"externalRefs,omitempty"`
	Comment   string      `json:"comment,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// noAssertion is SPDX's value for a field without a claim.
const noAssertion = "NOASSERTION"

// Bill lists the programs of an image and the modules that the linker recorded in each, as SPDX in JSON. The same
// programs give the same bytes. digest is the digest of the image.
func Bill(programs []string, digest string, o Options) ([]byte, error) {
	d := document{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: o.Name,
		Namespace: "https://acceld.dev/spdx/" + strings.ReplaceAll(digest, ":", "-"),
		Creation: creation{
			o.Created.UTC().Format(time.RFC3339),
			[]string{"Tool: github.com/acceld/acceld/packaging/image"},
		},
	}
	ids := map[string]string{}
	for _, path := range programs {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		id := "SPDXRef-program-" + filepath.Base(path)
		d.Packages = append(d.Packages, component{
			ID: id, Name: filepath.Base(path), Version: o.Version, Location: noAssertion, License: "Apache-2.0",
			Copyright: noAssertion,
			Purpose:   "APPLICATION", Checksums: []checksum{{"SHA256", hex.EncodeToString(sum[:])}},
		})
		d.Relationships = append(d.Relationships, relationship{d.ID, "DESCRIBES", id})
		toolchain := &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}
		for _, m := range append([]*debug.Module{toolchain}, info.Deps...) {
			if m.Replace != nil {
				m = m.Replace
			}
			name := m.Path + "@" + m.Version
			if ids[name] == "" {
				ids[name] = fmt.Sprintf("SPDXRef-module-%d", len(ids)+1)
				d.Packages = append(d.Packages, module(ids[name], m))
			}
			d.Relationships = append(d.Relationships, relationship{id, "CONTAINS", ids[name]})
		}
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

func module(id string, m *debug.Module) component {
	c := component{
		ID: id, Name: m.Path, Version: m.Version, Location: noAssertion, License: noAssertion, Copyright: noAssertion,
		Purpose: "LIBRARY",
		Refs: []reference{{
			"PACKAGE-MANAGER", "purl",
			"pkg:golang/" + strings.ToLower(m.Path) + "@" + strings.ReplaceAll(m.Version, "+", "%2B"),
		}},
	}
	if m.Sum != "" {
		c.Comment = "go.sum: " + m.Sum
	}
	return c
}
