package kube

import (
	_ "k8s.io/client-go/gentype"
	_ "k8s.io/client-go/informers/core/v1"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/kubernetes/scheme"
	_ "k8s.io/client-go/rest"
)
