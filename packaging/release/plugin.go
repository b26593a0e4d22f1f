package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Names of kubectl's plugin and of the manifest that Krew installs it by.
const (
	pluginName = "kubectl-acceld"
	krewFile   = "kubectl-acceld.krew.yaml"
)

// platform is where kubectl's plugin runs, as Krew's manifest says it (krew.sigs.k8s.io, krew-manifest).
type platform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

// plugin packs kubectl's plugin with the license, for the system and processor that the directory is named after, such
// as darwin-arm64. Windows gets a zip, which it can unpack.
func (o *Options) plugin(dir string) (p platform, err error) {
	target := filepath.Base(dir)
	system, processor, both := strings.Cut(target, "-")
	if !both || system == "" || processor == "" {
		return p, fmt.Errorf("cannot tell the system of the plugin in %q: want a name such as linux-amd64", dir)
	}
	p.Bin = pluginName
	form, pack := ".tar.gz", pack
	if system == "windows" {
		p.Bin += ".exe"
		form, pack = ".zip", packZip
	}
	program, err := os.ReadFile(filepath.Join(dir, p.Bin))
	if err != nil {
		return p, fmt.Errorf("cannot pack kubectl's plugin: %w", err)
	}
	license, err := os.ReadFile(filepath.Join(o.Root, "LICENSE"))
	if err != nil {
		return p, fmt.Errorf("cannot pack kubectl's plugin: %w", err)
	}
	name := fmt.Sprintf("%s-%s-%s%s", pluginName, o.Version, target, form)
	file := filepath.Join(o.Out, name)
	if err := pack(file, []entry{{p.Bin, 0o755, program}, {"LICENSE", 0o644, license}}, o.Created); err != nil {
		return p, err
	}
	p.Selector.MatchLabels = map[string]string{"os": system, "arch": processor}
	p.URI = strings.TrimSuffix(o.URL, "/") + "/" + name
	p.SHA256, err = sumOf(file)
	return p, err
}

// packZip writes files into a zip, all of one time.
func packZip(path string, files []entry, created time.Time) error {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: created}
		h.SetMode(f.mode)
		to, err := w.CreateHeader(h)
		if err == nil {
			_, err = to.Write(f.data)
		}
		if err != nil {
			return fmt.Errorf("cannot pack %q: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("cannot write %q: %w", path, err)
	}
	return replace(path, b.Bytes(), 0o644)
}

// plugins packs kubectl's plugin for each system. If it is known where the release will be, Krew's manifest leads
// there.
func (o *Options) plugins() error {
	var all []platform
	for _, dir := range o.Plugins {
		p, err := o.plugin(dir)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	if o.URL == "" || len(all) == 0 {
		return nil
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": map[string]any{"name": strings.TrimPrefix(pluginName, "kubectl-")},
		"spec": map[string]any{
			"version": "v" + o.Version, "homepage": o.Source, "platforms": all,
			"shortDescription": "Show accelerators and why a pod has none",
			"description": "Shows the nodes, devices and policies that acceld looks after, and says\n" +
				"why a pod that wants a device waits or has failed.\n",
		},
	})
	if err != nil {
		return fmt.Errorf("cannot write Krew's manifest: %w", err)
	}
	return replace(filepath.Join(o.Out, krewFile), text, 0o644)
}
