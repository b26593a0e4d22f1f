package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Prefix of the resources of the nodes that are made here.
const Prefix = "gpu.example.com/"

// Amounts are amounts by resource without prefix.
type Amounts map[string]string

func (a Amounts) list() corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range a {
		out[corev1.ResourceName(Prefix+name)] = resource.MustParse(amount)
	}
	return out
}

// Node makes a node with so many cards and these totals.
func Node(name string, cards int, total Amounts) *corev1.Node {
	var numbers []string
	for i := range cards {
		numbers = append(numbers, fmt.Sprint(i))
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{Prefix + "gpu-numbers": strings.Join(numbers, ".")},
		},
		Status: corev1.NodeStatus{Allocatable: total.list(), Capacity: total.list()},
	}
}

// Pod makes a pod with one container for each of asked, bound to a node with these cards when they are not empty.
func Pod(name, node, cards string, asked ...Amounts) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if node != "" {
		p.Status.Phase = corev1.PodRunning
	}
	if cards != "" {
		p.Annotations["gas-ts"], p.Annotations["gas-container-cards"] = "1", cards
	}
	for i, a := range asked {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Resources: corev1.ResourceRequirements{Requests: a.list(), Limits: a.list()},
		})
	}
	return p
}

// Certificate writes a certificate and its key for localhost, signed by itself and good as an authority for itself, and
// returns the names of the two files.
func Certificate(dir, name string) (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return "", "", err
	}
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return "", "", err
	}
	return cert, key, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600)
}

// Kubeconfig writes one for an API server at a URL, without any credentials.
func Kubeconfig(file, url string) error {
	return os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \""+url+
		"\"}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n"),
		0o600)
}
