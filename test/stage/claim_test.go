package stage

import (
	"bytes"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// TestClaimManifests holds the manifests to the API's own types: a scenario should not be the first to read them.
func TestClaimManifests(t *testing.T) {
	more := []string{`selectors: [{cel: {expression: "true"}}]`, "capacity: {requests: {memory: 5Gi}}"}
	claim, template, pod, deployment := resourceapi.ResourceClaim{}, resourceapi.ResourceClaimTemplate{}, corev1.Pod{},
		appsv1.Deployment{}
	job := batchv1.Job{}
	for _, c := range []struct {
		text []byte
		into any
	}{
		{Claim("c", more...), &claim},
		{ClaimTemplate("c", more...), &template},
		{ClaimPod("p", "i", "resourceClaimName: c", "-expect", "1"), &pod},
		{ClaimDeployment("d", "i", "resourceClaimTemplateName: c", 4, "-hold", "2h"), &deployment},
		{ClaimJob("j", "i", "resourceClaimTemplateName: c", 10, 4, "-hold", "2h"), &job},
	} {
		if err := yaml.UnmarshalStrict(bytes.TrimPrefix(c.text, []byte("---\n")), c.into); err != nil {
			t.Errorf("%T: %v\n%s", c.into, err, c.text)
		}
	}
	for _, devices := range []resourceapi.DeviceClaim{claim.Spec.Devices, template.Spec.Spec.Devices} {
		if r := devices.Requests; len(r) != 1 || r[0].Exactly.DeviceClassName != Class ||
			len(r[0].Exactly.Selectors) != 1 || r[0].Exactly.Capacity == nil {
			t.Errorf("requests: %+v", r)
		}
	}
	for _, spec := range []corev1.PodSpec{pod.Spec, deployment.Spec.Template.Spec, job.Spec.Template.Spec} {
		if len(spec.ResourceClaims) != 1 || len(spec.Containers[0].Resources.Claims) != 1 ||
			len(spec.Containers[0].Args) != 2 {
			t.Errorf("pod: %+v", spec)
		}
	}
}
