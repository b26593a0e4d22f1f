package stage

import "fmt"

// Class is the DeviceClass of the stand-in accelerator.
const Class = Kind + ".acceld.dev"

// Claim is the manifest of a ResourceClaim for one device of the class. More are lines of the request, such as
// "selectors: […]".
func Claim(name string, more ...string) []byte {
	return fmt.Appendf(nil,
		"---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: %s, namespace: default}\nspec:\n%s",
		name, claimSpec("  ", more))
}

// ClaimTemplate is the manifest of a ResourceClaimTemplate for the same.
func ClaimTemplate(name string, more ...string) []byte {
	return fmt.Appendf(nil,
		"---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: %s, namespace: default}\nspec:\n  spec:\n%s",
		name, claimSpec("    ", more))
}

func claimSpec(indent string, more []string) string {
	text := indent + "devices:\n" + indent + "  requests:\n" + indent + "  - name: edu\n" + indent + "    exactly:\n" +
		indent + "      deviceClassName: " + Class + "\n"
	for _, line := range more {
		text += indent + "      " + line + "\n"
	}
	return text
}

// ClaimPod is the manifest of a pod that computes on the devices of a claim. Source is "resourceClaimName: <name>" or
// "resourceClaimTemplateName: <name>"; arguments are edu-check's.
func ClaimPod(name, image, source string, args ...string) []byte {
	return fmt.Appendf(nil,
		"---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, labels: {app: claim}}\nspec:\n%s",
		name, claimPodSpec("  ", image, source, args))
}

// ClaimDeployment is the manifest of a Deployment of such pods.
func ClaimDeployment(name, image, source string, replicas int, args ...string) []byte {
	return fmt.Appendf(nil, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
%[3]s`, name, replicas, claimPodSpec("      ", image, source, args))
}

// ClaimJob is the manifest of a Job of such pods, some of them at a time. One that fails is the end of it.
func ClaimJob(name, image, source string, completions, parallelism int, args ...string) []byte {
	return fmt.Appendf(nil, `---
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s, namespace: default}
spec:
  completions: %[2]d
  parallelism: %[3]d
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
%[4]s`, name, completions, parallelism, claimPodSpec("      ", image, source, args))
}

func claimPodSpec(indent, image, source string, args []string) string {
	text := indent + "terminationGracePeriodSeconds: 1\n"
	if indent == "  " {
		text += indent + "restartPolicy: Never\n"
	}
	text += indent + "resourceClaims:\n" + indent + "- name: edu\n" + indent + "  " + source + "\n" +
		indent + "containers:\n" + indent + "- name: compute\n" + indent + "  image: " + image + "\n" +
		indent + "  resources: {claims: [{name: edu}]}\n" + indent + "  args:\n"
	for _, a := range args {
		text += indent + fmt.Sprintf("  - %q\n", a)
	}
	return text
}
