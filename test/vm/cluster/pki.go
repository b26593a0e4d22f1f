package cluster

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
	"time"

	"github.com/acceld/acceld/test/vm/seed"
)

// The names of the credentials, each a file pair `<name>.crt` and `<name>.key` in the PKI folder.
const (
	credCA         = "ca"
	credServer     = "server"
	credServiceKey = "service-accounts"
	credToNode     = "apiserver-to-node"
	credAdmin      = "admin"
	credController = "controller-manager"
	credScheduler  = "scheduler"
)

// lifetime outlives any cache; the certificates guard a loopback address.
const lifetime = 10 * 365 * 24 * time.Hour

// identity is the subject of a certificate and where it may be used.
type identity struct {
	name, user string
	groups     []string
	hosts      []string
	ips        []string
}

func identities() []identity {
	ids := []identity{
		{
			name: credServer, user: "kube-apiserver",
			hosts: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local",
			},
			ips: []string{"127.0.0.1", seed.HostIP, seed.ServiceIP},
		},
		{name: credToNode, user: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
		{name: credAdmin, user: "admin", groups: []string{"system:masters"}},
		{name: credController, user: "system:kube-controller-manager"},
		{name: credScheduler, user: "system:kube-scheduler"},
		// Only the key is used: service account tokens are signed with it.
		{name: credServiceKey, user: "service-accounts"},
	}
	for _, m := range seed.Members() {
		user, groups := "system:node:"+m.Hostname, []string{"system:nodes"}
		ids = append(ids, identity{
			name: nodeServer(m), user: user, groups: groups, hosts: []string{m.Hostname},
			ips: []string{m.IP},
		},
			identity{name: nodeClient(m), user: user, groups: groups})
	}
	return ids
}

// nodeServer and nodeClient are the credentials of a node's kubelet.
func nodeServer(m seed.Member) string { return m.Hostname + "-server" }
func nodeClient(m seed.Member) string { return m.Hostname + "-client" }

// PKI is a folder of credentials.
type PKI struct{ dir string }

// OpenPKI returns the credentials in a folder. The caller makes them with MakePKI.
func OpenPKI(dir string) PKI { return PKI{dir} }

// MakePKI makes a certificate authority and everybody's credentials in an existing folder.
func MakePKI(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("cannot make a key: %w", err)
	}
	// An hour back, for a guest whose clock is behind.
	from := time.Now().Add(-time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "acceld test bed"},
		NotBefore: from, NotAfter: from.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if err := write(dir, credCA, ca, ca, key, key); err != nil {
		return err
	}
	for i, id := range identities() {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 2)),
			Subject:      pkix.Name{CommonName: id.user, Organization: id.groups},
			NotBefore:    from, NotAfter: from.Add(lifetime),
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
			DNSNames:    id.hosts,
		}
		for _, ip := range id.ips {
			leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(ip))
		}
		leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return fmt.Errorf("cannot make a key: %w", err)
		}
		if err := write(dir, id.name, leaf, ca, leafKey, key); err != nil {
			return err
		}
	}
	return nil
}

func write(dir, name string, certificate, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, certificate, parent, &key.PublicKey, parentKey)
	if err != nil {
		return fmt.Errorf("cannot sign certificate %q: %w", name, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("cannot encode key %q: %w", name, err)
	}
	for suffix, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: der},
		".key": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("cannot write credential: %w", err)
		}
	}
	return nil
}

func (p PKI) cert(name string) string { return filepath.Join(p.dir, name+".crt") }
func (p PKI) key(name string) string  { return filepath.Join(p.dir, name+".key") }

// kubeconfig writes a client configuration that names the credentials by path, and returns its file.
func (p PKI) kubeconfig(dir, name, server string) (string, error) {
	path := filepath.Join(dir, name+".conf")
	text := renderKubeconfig(server, p.cert(credCA), p.cert(name), p.key(name))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("cannot write client configuration: %w", err)
	}
	return path, nil
}

func renderKubeconfig(server, ca, certificate, key string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: bed
clusters: [{name: bed, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: bed, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: bed, context: {cluster: bed, user: bed}}]
`, server, ca, certificate, key)
}

// NodeFiles are the kubelet's credentials, by path in the guest. apiServer is host:port as the guest sees it.
func (p PKI) NodeFiles(m seed.Member, apiServer string) (map[string]string, error) {
	const dir = "/etc/kubernetes/pki/"
	files := map[string]string{
		"/etc/kubernetes/kubelet.conf": renderKubeconfig("https://"+apiServer, dir+"ca.crt", dir+"client.crt",
			dir+"client.key"),
	}
	for path, from := range map[string]string{
		dir + "ca.crt": p.cert(credCA), dir + "client.crt": p.cert(nodeClient(m)),
		dir + "client.key":  p.key(nodeClient(m)),
		dir + "kubelet.crt": p.cert(nodeServer(m)), dir + "kubelet.key": p.key(nodeServer(m)),
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("cannot read a credential of the node: %w", err)
		}
		files[path] = string(content)
	}
	return files, nil
}
