// Package clientset is the usual set of clients for the API server of a node, for tests. The test bed does without:
// what imports this takes as long to compile as acceld.
package clientset

import (
	"k8s.io/client-go/kubernetes"

	"github.com/acceld/acceld/test/vm/bed"
)

// Of returns the admin's clients for the cluster of a node. They share its connections.
func Of(n *bed.Node) *kubernetes.Clientset {
	clients, err := kubernetes.NewForConfig(n.REST())
	if err != nil {
		panic(err) // the bed has used this configuration
	}
	return clients
}
