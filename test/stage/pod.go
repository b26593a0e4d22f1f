package stage

import (
	"context"
	"fmt"
	"os"

	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
)

// Workload pushes the image of edu-check and returns its name.
func (s *Stage) Workload(ctx context.Context, n *bed.Node) (string, error) {
	program, err := os.ReadFile(s.Program("edu-check"))
	if err != nil {
		return "", err
	}
	return n.PushImage(ctx, "edu-check:test", map[string]image.File{"/edu-check": {Mode: 0o755, Content: program}},
		"/edu-check")
}

// Pod is the manifest of a pod that requests accelerators and computes on them. Arguments are edu-check's.
func Pod(name, image string, devices int, args ...string) []byte {
	return PodOf(Resource, name, image, devices, args...)
}

// PodOf is [Pod] for another resource.
func PodOf(resource, name, image string, devices int, args ...string) []byte {
	list := ""
	for _, a := range args {
		list += fmt.Sprintf("\n    - %q", a)
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: compute
    image: %s
    args:%s
    resources:
      limits:
        %s: %d
`, name, image, list, resource, devices)
}
