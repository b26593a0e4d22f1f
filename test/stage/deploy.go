package stage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/test/vm/bed"
)

// Deploy applies the manifests with the image of this tree.
func (s *Stage) Deploy(ctx context.Context, n *bed.Node) error { return s.DeployOver(ctx, n, "", "") }

// DeployOver is [Stage.Deploy] with more lines of a kustomization, for which config is the file config.yaml.
func (s *Stage) DeployOver(ctx context.Context, n *bed.Node, more, config string) error {
	image, err := s.Image(ctx, n.Bed())
	if err != nil {
		return err
	}
	return s.applyOver(ctx, n, "packaging/manifests", "acceld", image, more, config)
}

// applyOver applies a folder of the tree's manifests with an image of this tree, which has a name there, and with more
// lines of a kustomization, for which config is the file config.yaml.
func (s *Stage) applyOver(ctx context.Context, n *bed.Node, manifests, name, image, more, config string) error {
	dir, err := os.MkdirTemp(filepath.Dir(s.bin), "manifests-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for a kustomization: %w", err)
	}
	defer os.RemoveAll(dir)
	from, err := filepath.Rel(dir, s.File(manifests)) // kustomize takes no absolute path
	if err != nil {
		return fmt.Errorf("cannot find %q: %w", manifests, err)
	}
	colon := strings.LastIndex(image, ":")
	for file, text := range map[string]string{
		"config.yaml": config,
		"kustomization.yaml": fmt.Sprintf("resources: [%q]\nimages: [{name: %s, newName: %q, newTag: %q}]\n%s", from, name,
			image[:colon], image[colon+1:], more),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return fmt.Errorf("cannot write a kustomization: %w", err)
		}
	}
	out, err := n.Kubectl(ctx, nil, "kustomize", dir)
	if err != nil {
		return err
	}
	return n.Apply(ctx, []byte(out))
}
