// Package cluster runs a Kubernetes control plane natively on the host's loopback: etcd, API server, scheduler and
// controller manager, with real certificates, RBAC, the node authorizer and node restriction. It knows the node only as
// an address to dial.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/acceld/acceld/test/vm/process"
	"github.com/acceld/acceld/test/vm/seed"
)

// Config is what a control plane is made from.
type Config struct {
	// Dir holds the etcd data, logs and configuration files of this run.
	Dir string
	// Port is the API server's; guests know it.
	Port int
	PKI  PKI
	// Program finds a binary by name.
	Program func(name string) string
	Starter *process.Starter
	// Dial reaches kubelets and pods.
	Dial Dialer
	// Alone leaves scheduler and controller manager out: nobody but the caller changes objects.
	Alone bool
	// APIServer and Manager are further flags of the API server and of the controller manager.
	APIServer, Manager []string
}

// Plane is a running control plane.
type Plane struct {
	config     Config
	sockets    string
	egress     net.Listener
	kubeconfig string
	etcdPort   int
	etcd       *process.Child
	apiServer  *process.Child
	scheduler  *process.Child
	controller *process.Child
	client     *Client
	rest       *rest.Config
}

// startTimeout is generous: two busy cores share it with an emulated guest.
const startTimeout = 90 * time.Second

// Start starts a control plane and waits until the API server is ready. The scheduler and the controller manager start
// in the background and wait for themselves.
func Start(ctx context.Context, c Config) (_ *Plane, err error) {
	p := &Plane{config: c}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	for _, dir := range []string{"logs", "etcd"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the control plane's folder: %w", err)
		}
	}
	if err := p.openEgress(); err != nil {
		return nil, err
	}
	if p.kubeconfig, err = c.PKI.kubeconfig(c.Dir, credAdmin, p.url()); err != nil {
		return nil, err
	}
	if err := p.connect(); err != nil {
		return nil, err
	}
	if err := p.startEtcd(); err != nil {
		return nil, err
	}
	if err := p.StartAPIServer(ctx); err != nil || c.Alone {
		return p, err
	}
	if err := p.startController(); err != nil {
		return nil, err
	}
	return p, p.StartScheduler("")
}

// Here starts a control plane that no guest knows, with credentials, ports and everything else in dir. Of c it takes
// the programs and what it is to be like.
func Here(ctx context.Context, dir string, c Config) (*Plane, error) {
	if err := MakePKI(dir); err != nil {
		return nil, err
	}
	ports, err := FreePorts(1)
	if err != nil {
		return nil, err
	}
	if c.Starter, err = process.NewStarter(filepath.Join(dir, "processes")); err != nil {
		return nil, err
	}
	c.Dir, c.Port, c.PKI = filepath.Join(dir, "plane"), ports[0], OpenPKI(dir)
	c.Dial = func(context.Context, string) (net.Conn, error) {
		return nil, errors.New("there is no kubelet and no pod")
	}
	return Start(ctx, c)
}

func (p *Plane) url() string { return fmt.Sprintf("https://127.0.0.1:%d", p.config.Port) }

func (p *Plane) openEgress() error {
	// A unix socket's path is short by definition (unix(7)): not below a cache folder of any depth.
	dir, err := os.MkdirTemp("", "bed-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for sockets: %w", err)
	}
	p.sockets = dir
	if p.egress, err = net.Listen("unix", filepath.Join(dir, "egress")); err != nil {
		return fmt.Errorf("cannot listen for the API server's connections to nodes: %w", err)
	}
	go serveEgress(p.egress, p.config.Dial)
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, filepath.Join(dir, "egress"))
	if err := os.WriteFile(filepath.Join(p.config.Dir, "egress.yaml"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("cannot write egress configuration: %w", err)
	}
	return nil
}

func (p *Plane) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot read the admin's client configuration: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	p.rest = config
	p.client, err = newClient(config)
	return err
}

// run starts a component with its output in logs/<name>.log.
func (p *Plane) run(name string, args ...string) (*process.Child, error) {
	log, err := os.OpenFile(filepath.Join(p.config.Dir, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of %q: %w", name, err)
	}
	defer log.Close()
	return p.config.Starter.Start(name, log, exec.Command(p.config.Program(name), args...))
}

func (p *Plane) startEtcd() error {
	ports, err := FreePorts(2)
	if err != nil {
		return err
	}
	p.etcdPort = ports[0]
	client, peer := fmt.Sprintf("https://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	pki := p.config.PKI
	p.etcd, err = p.run("etcd",
		"--data-dir="+filepath.Join(p.config.Dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--cert-file="+pki.cert(credServer), "--key-file="+pki.key(credServer),
		"--trusted-ca-file="+pki.cert(credCA), "--client-cert-auth", "--log-level=warn")
	return err
}

// StartAPIServer starts the API server and waits until it is ready.
func (p *Plane) StartAPIServer(ctx context.Context) error {
	pki := p.config.PKI
	var err error
	p.apiServer, err = p.run("kube-apiserver", append([]string{
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", p.etcdPort),
		"--etcd-cafile=" + pki.cert(credCA), "--etcd-certfile=" + pki.cert(credServer), "--etcd-keyfile=" +
			pki.key(credServer),
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(p.config.Port),
		// The guest's name for this host: loopback is refused.
		"--advertise-address=" + seed.HostIP, "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + pki.cert(credServer), "--tls-private-key-file=" + pki.key(credServer),
		"--client-ca-file=" + pki.cert(credCA), "--anonymous-auth=false",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki.cert(credServiceKey), "--service-account-signing-key-file=" +
			pki.key(credServiceKey),
		"--kubelet-certificate-authority=" + pki.cert(credCA),
		"--kubelet-client-certificate=" + pki.cert(credToNode), "--kubelet-client-key=" + pki.key(credToNode),
		"--kubelet-preferred-address-types=InternalIP",
		"--egress-selector-config-file=" + filepath.Join(p.config.Dir, "egress.yaml"),
		"--allow-privileged", "--profiling=false", "--v=1",
	}, p.config.APIServer...)...)
	if err != nil {
		return err
	}
	return p.waitReady(ctx)
}

func (p *Plane) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		_, err := p.client.clients[corev1.SchemeGroupVersion].Get().AbsPath("/readyz").Timeout(2 * time.Second).DoRaw(ctx)
		if err == nil {
			return nil
		}
		for _, child := range []*process.Child{p.etcd, p.apiServer} {
			if ended := child.Exited(); ended != nil {
				return fmt.Errorf("cannot start the control plane (logs in %q): %w",
					filepath.Join(p.config.Dir, "logs"), ended)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the API server (logs in %q): %w", filepath.Join(p.config.Dir, "logs"),
				errors.Join(ctx.Err(), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// StopAPIServer ends the API server; etcd and the others go on.
func (p *Plane) StopAPIServer() {
	p.apiServer.Stop(5 * time.Second)
}

func (p *Plane) startController() error {
	config, err := p.config.PKI.kubeconfig(p.config.Dir, credController, p.url())
	if err != nil {
		return err
	}
	pki := p.config.PKI
	p.controller, err = p.run("kube-controller-manager", append([]string{
		"--kubeconfig=" + config, "--leader-elect=false", "--secure-port=0",
		"--use-service-account-credentials", "--root-ca-file=" + pki.cert(credCA),
		"--service-account-private-key-file=" + pki.key(credServiceKey),
		"--cluster-signing-cert-file=" + pki.cert(credCA), "--cluster-signing-key-file=" + pki.key(credCA),
		"--allocate-node-cidrs=false", "--profiling=false",
	}, p.config.Manager...)...)
	return err
}

// StartScheduler starts the scheduler, or starts it again with other extenders: a YAML list, as in the `extenders`
// field of KubeSchedulerConfiguration, or nothing.
func (p *Plane) StartScheduler(extenders string) error {
	if p.scheduler != nil {
		p.scheduler.Stop(5 * time.Second)
	}
	config, err := p.config.PKI.kubeconfig(p.config.Dir, credScheduler, p.url())
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q}
`, config)
	if extenders != "" {
		text += "extenders:\n" + extenders + "\n"
	}
	file := filepath.Join(p.config.Dir, "scheduler.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("cannot write scheduler configuration: %w", err)
	}
	p.scheduler, err = p.run("kube-scheduler", "--config="+file, "--secure-port=0")
	return err
}

// Client is the bed's own client.
func (p *Plane) Client() *Client { return p.client }

// REST is the admin's configuration for other clients.
func (p *Plane) REST() *rest.Config { return rest.CopyConfig(p.rest) }

// Kubeconfig is the admin's file.
func (p *Plane) Kubeconfig() string { return p.kubeconfig }

// GuestKubeconfig is the admin's client configuration for a program in a guest, with the credentials in it.
func (p *Plane) GuestKubeconfig() ([]byte, error) {
	data := map[string][]byte{}
	for name, file := range map[string]string{
		"ca": p.config.PKI.cert(credCA), "cert": p.config.PKI.cert(credAdmin),
		"key": p.config.PKI.key(credAdmin),
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read a credential: %w", err)
		}
		data[name] = content
	}
	const bed = "bed"
	c := clientcmdapi.NewConfig()
	c.Clusters[bed] = &clientcmdapi.Cluster{
		Server:                   fmt.Sprintf("https://%s:%d", seed.HostIP, p.config.Port),
		CertificateAuthorityData: data["ca"],
	}
	c.AuthInfos[bed] = &clientcmdapi.AuthInfo{ClientCertificateData: data["cert"], ClientKeyData: data["key"]}
	c.Contexts[bed] = &clientcmdapi.Context{Cluster: bed, AuthInfo: bed}
	c.CurrentContext = bed
	text, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("cannot write a client configuration: %w", err)
	}
	return text, nil
}

// WriteKubeconfig writes a client configuration for who has a token, to the API server that config is for.
func WriteKubeconfig(file string, config *rest.Config, token string) error {
	const bed = "bed"
	c := clientcmdapi.NewConfig()
	c.Clusters[bed] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthority: config.CAFile,
		CertificateAuthorityData: config.CAData,
	}
	c.AuthInfos[bed] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	c.Contexts[bed] = &clientcmdapi.Context{Cluster: bed, AuthInfo: bed}
	c.CurrentContext = bed
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		return fmt.Errorf("cannot write a client configuration: %w", err)
	}
	return nil
}

// Logs is the folder of the components' logs.
func (p *Plane) Logs() string { return filepath.Join(p.config.Dir, "logs") }

// CopyData copies etcd's data, which stands still meanwhile: the copy is what a power cut would leave.
func (p *Plane) CopyData(to string) error {
	return p.etcd.Freeze(func() error {
		if err := os.CopyFS(to, os.DirFS(filepath.Join(p.config.Dir, "etcd"))); err != nil {
			return fmt.Errorf("cannot copy etcd's data: %w", err)
		}
		return nil
	})
}

// Stop ends everything; etcd last and in peace, so that its data can be copied.
func (p *Plane) Stop() {
	for _, child := range []*process.Child{p.scheduler, p.controller, p.apiServer} {
		if child != nil {
			child.Stop(0)
		}
	}
	if p.etcd != nil {
		p.etcd.Stop(10 * time.Second)
	}
	if p.egress != nil {
		p.egress.Close()
	}
	if p.sockets != "" {
		os.RemoveAll(p.sockets)
	}
}

// FreePorts finds ports of the loopback address that nobody listens on now.
func FreePorts(n int) ([]int, error) {
	var ports []int
	var held []net.Listener
	// All are held until all are found, or the same one would be found twice.
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("cannot find a free port: %w", err)
		}
		held = append(held, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
