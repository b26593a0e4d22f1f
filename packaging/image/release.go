package main

import (
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Release is what is published under one name.
type Release struct {
	// Images has one image for each processor, in the requested order.
	Images []v1.Image
	// Index refers to the images if there are several; nil otherwise.
	Index v1.ImageIndex
	// Lists say what is in each image, by its digest; empty unless requested.
	Lists []v1.Image
}

// Digest returns the digest by which the release is referred to.
func (r *Release) Digest() (v1.Hash, error) {
	if r.Index != nil {
		return r.Index.Digest()
	}
	return r.Images[0].Digest()
}

// NewRelease creates the images from directories of programs, each for a different processor.
func NewRelease(bins []string, o Options, lists bool) (*Release, error) {
	r := &Release{}
	seen := map[string]string{}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, bin := range bins {
		img, err := New(bin, o)
		if err != nil {
			return nil, err
		}
		platform, err := platformOf(img)
		if err != nil {
			return nil, err
		}
		if other, twice := seen[platform.Architecture]; twice {
			return nil, fmt.Errorf("cannot use programs in %q: those in %q are for %s too", bin, other,
				platform.Architecture)
		}
		seen[platform.Architecture] = bin
		r.Images = append(r.Images, img)
		index = mutate.AppendManifests(index,
			mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
		if !lists {
			continue
		}
		list, err := attached(bin, img, o)
		if err != nil {
			return nil, fmt.Errorf("cannot list what is in the programs of %q: %w", bin, err)
		}
		r.Lists = append(r.Lists, list)
	}
	if len(bins) > 1 {
		r.Index = index
	}
	return r, nil
}

func platformOf(img v1.Image) (*v1.Platform, error) {
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("cannot read the image's configuration: %w", err)
	}
	return &v1.Platform{OS: file.OS, Architecture: file.Architecture}, nil
}

// listType is the media type of a list. It is the type of the only layer and of the configuration, and thereby of the
// artifact (OCI Image Specification 1.1, manifest, "artifactType").
const listType = types.MediaType("application/spdx+json")

// attached creates the list of an image. The list refers to the image as its subject.
func attached(bin string, img v1.Image, o Options) (v1.Image, error) {
	subject, err := partial.Descriptor(img)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range programsIn(bin, o) {
		paths = append(paths, filepath.Join(bin, name))
	}
	text, err := Bill(paths, subject.Digest.String(), o)
	if err != nil {
		return nil, err
	}
	list := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), listType)
	list, err = mutate.AppendLayers(list, static.NewLayer(text, listType))
	if err != nil {
		return nil, err
	}
	referring, ok := mutate.Subject(list, *subject).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("cannot refer to %s", subject.Digest)
	}
	return referring, nil
}
