package e2e

// excuses are the steps of pages that TestNewcomer does not carry out, and what shows the same, or why nothing does.
func excuses() []excuse {
	const noGPU = "no GPU is to be had; test/nvidia gets the driver of the same definition in the same way"
	const noDevice = "no device of this vendor is to be had; test/machines holds the definition to a machine"
	const noNode = "it needs a ready node of that name; test/scripts has the command with such a node"
	const openShift = "no OpenShift is to be had; test/chart holds what these values render"
	const noRelease = "nothing is published yet; packaging/release makes a release, with a key, and installs from it"
	const sameWay = "packaging/release verifies what it made in the same way"
	const archive = "TestRelease removes what the archive of a release has installed"
	const chart = "TestChart puts a release's images into a registry and installs its chart"
	const noZones = "the guests have no type NodeResourceTopology; package kube writes it to a server that has it"
	return []excuse{
		{"README.md", "make demo", "it is a scenario of its own"},
		{"README.md", "make test", "it is all scenarios, and nearly this one"},
		{
			"docs/install.md", "kubectl -n acceld-system logs job/acceld-remove",
			"only an uninstall that failed leaves the Job; TestChart reads its log then",
		},
		{"docs/install.md", "oc apply", openShift},
		{
			"docs/topology.md", "kubernetes:",
			"the type comes with scheduler plugins that the guests do not have; kube holds what is written to an API",
		},
		{
			"docs/topology.md", "kubectl apply -k packaging/manifests/topology",
			"the right for that type; packaging/manifests and test/admission hold it to one object",
		},
		{
			"docs/topology.md", "# example-trainer.yaml", "the guests have no RDMA device; accel and runtime hold what a container gets",
		},
		{"docs/trust.md", "policies:", "it is what a host does without it"},
		{"docs/trust.md", "definitionsFrom:", "a part of a policy; TestPins holds the digest to the text"},
		{
			"docs/trust.md", "apiVersion: rbac.authorization.k8s.io/v1",
			"no class of the guests has that name; TestAdmission shows what the right allows",
		},
		{
			"docs/install.md",
			"helm install acceld packaging/chart --namespace acceld-system --set registry=registry.example.com/acceld --set openshift=true",
			openShift,
		},
		{"docs/install.md", "configMapGenerator:", "a part of an overlay; TestWholeDriver lays it over the manifests"},
		{"docs/install.md", "patches:", "a part of an overlay for API servers that are older than the bed's"},
		{
			"docs/monitoring.md", "scrape_configs:",
			"a part of Prometheus' file; TestMonitoring has a Prometheus with one like it",
		},
		{
			"docs/scheduling.md", "policies: true",
			"every option of the controller's file; cmd/acceld-controller holds it to the program",
		},
		{
			"docs/scheduling.md", "apiVersion: kubescheduler.config.k8s.io/v1",
			"the scheduler's file; cmd/acceld-controller reads it, and TestCards has the real scheduler with one like it",
		},
		{
			"docs/drivers.md", "acceld exec qemu-edu -- edu-smi",
			"the definition that acceld brings has no user space; TestUserSpace runs the program of one that has",
		},
		{"docs/quickstart-nvidia.md", "kinds:", noGPU},
		{"docs/quickstart-nvidia.md", "systemctl restart acceld", noGPU},
		{"docs/quickstart-nvidia.md", "acceld status", noGPU},
		{"docs/quickstart-nvidia.md", "acceld exec nvidia-gpu -- nvidia-smi", noGPU},
		{"docs/quickstart-nvidia.md", "podman run", noGPU},
		{"docs/quickstart-nvidia.md", "agent:", noGPU},
		{"docs/quickstart-nvidia.md", "curl -fo /etc/pki/rpm-gpg", noGPU},
		{"docs/quickstart-nvidia.md", "zypper install", noGPU},
		{"docs/quickstart-nvidia.md", "mkdir -p /etc/pki/rpm-gpg", noGPU},
		{"docs/handover.md", "kinds:", "TestHandover has a node with it"},
		{"docs/unrequested.md", "kinds:", "TestUnrequested has a node with the default; package usage has the others"},
		{"docs/usage.md", "kind: example-npu", "no such device is to be had; TestUsePerPod has the test bed's, package usage one like it"},
		{"docs/usage.md", "acceld status 0000:01:00.0", "TestUsePerPod has a node that shows it"},
		{"docs/health.md", "kinds:", "TestRepair has a node with it"},
		{"docs/settings.md", "kinds:", "no GPU is to be had; TestSettings sets the test bed's devices in the same way"},
		{"docs/settings.md", "kind: example-npu", "no such device is to be had; package settings has one with such attributes"},
		{"docs/quickstart-amd.md", "acceld status", noDevice},
		{"docs/quickstart-amd.md", "podman run", noDevice},
		{"docs/quickstart-amd.md", "apiVersion: v1", noDevice},
		{"docs/quickstart-intel.md", "acceld status", noDevice},
		{"docs/quickstart-intel.md", "podman run", noDevice},
		{"docs/quickstart-intel.md", "apiVersion: v1", noDevice},
		{"docs/quickstart-gaudi.md", "acceld status", noDevice},
		{"docs/quickstart-gaudi.md", "podman run", noDevice},
		{"docs/quickstart-gaudi.md", "apiVersion: v1", noDevice},
		{"docs/autoscaling.md", "kubectl get node gpu-17", noNode},
		{"docs/autoscaling.md", "kubectl get resourceslices", noNode},
		{"docs/autoscaling.md", "acceld template node.yaml", noNode},
		{"docs/autoscaling.md", "acceld template --node", noNode},
		{"docs/judge.md", "go run ./test/judge", "it is a test of its own, longer than this one"},
		{"docs/release.md", "curl -fsSLO", noRelease},
		{"docs/release.md", "sh install.sh", "TestRelease installs from the files of a release"},
		{"docs/release.md", "openssl base64", sameWay},
		{"docs/release.md", "openssl dgst", sameWay},
		{"docs/release.md", "sha256sum --check", sameWay},
		{"docs/release.md", "make release", noRelease},
		{"docs/release.md", "openssl ecparam", noRelease},
		{"docs/release.md", "openssl ec -in", noRelease},
		{"docs/release.md", "systemctl disable --now", archive},
		{"docs/release.md", "acceld purge", archive},
		{"docs/release.md", "tar -tzf", archive},
		{"docs/release.md", "skopeo copy", chart},
		{"docs/release.md", "kubectl create namespace", chart},
		{"docs/release.md", "kubectl label namespace", chart},
		{"docs/release.md", "helm install acceld acceld-chart-1.0.0.tgz", chart},
		{"docs/subsystems.md", "acceld detect -o json", "it needs jq; TestZoo finds the devices of all these subsystems"},
		{"docs/topology.md", "kubernetes:", noZones},
		{"docs/topology.md", "kubectl apply -k packaging/manifests/topology", noZones},
		{"docs/topology.md", "# example-trainer.yaml", "no RDMA device is beside a device of the guests; package accel has one"},
		{"docs/status.md", "ssh -L", "it forwards a port from another machine, with a name of the reader's"},
	}
}
