package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// TestExamples: each file of examples is valid for what reads it, and its table lists it.
func TestExamples(t *testing.T) {
	const dir = "../../../examples"
	table, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if !strings.Contains(string(table), "["+name+"]("+name+")") {
			t.Errorf("%s is not in the table", name)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "kind: Pod\n") {
			if says := faultsOf(t, string(text)); says != "" {
				t.Errorf("%s: %s", name, says)
			}
			continue
		}
		for object := range strings.SplitSeq(string(text), "---\n") {
			var into any = &corev1.Pod{}
			if strings.Contains(object, "kind: ResourceClaimTemplate\n") {
				into = &resourceapi.ResourceClaimTemplate{}
			}
			if err := yaml.UnmarshalStrict([]byte(object), into); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
