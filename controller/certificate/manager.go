package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
)

// madeAnnotation marks a Secret whose content the controller created. A Secret with content and without the mark
// belongs to somebody else: it is used and never written.
const madeAnnotation = kube.Prefix + "made-by"

const (
	madeBy = "acceld-controller"
	// again is how soon a refused write is retried.
	again = 10 * time.Second
	// deadline limits one request.
	deadline = 15 * time.Second
)

// errNone refuses a connection before there is a certificate.
var errNone = errors.New("there is no certificate yet")

// Manager is the task that maintains the certificates. All replicas run it. The first one creates them, and the others
// see them by their watch.
type Manager struct {
	API kube.API
	// Namespace and Name are those of the Secret. It must exist and may be empty.
	Namespace, Name string
	// Names are the DNS names of the controller. The first one is also the subject.
	Names []string
	Log   *slog.Logger

	mu       sync.Mutex
	config   *tls.Config
	reported kube.Reported
}

// secret holds the fields that are read of a Secret.
type secret struct {
	kube.Meta `json:"metadata"`
	Data      map[string][]byte `json:"data,omitempty"`
}

// TLS returns a configuration that follows the Secret. A handshake fails before there is a certificate.
func (k *Manager) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config,
		error,
	) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.config == nil {
			return nil, errNone
		}
		return k.config, nil
	}}
}

// Has reports whether there is a certificate.
func (k *Manager) Has() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.config != nil
}

// Run maintains the certificates until ctx ends.
func (k *Manager) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	secrets := &kube.Reflector[secret, *secret]{
		API: k.API, Path: k.collection(), Query: url.Values{"fieldSelector": {"metadata.name=" + k.Name}},
		Changed: func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		},
	}
	return guard.Together(ctx, secrets.Run, func(ctx context.Context) error {
		k.follow(ctx, secrets, wake)
		return nil
	})
}

// follow makes a pass whenever one is due, until ctx ends.
func (k *Manager) follow(ctx context.Context, secrets *kube.Reflector[secret, *secret], wake <-chan struct{}) {
	timer := time.NewTimer(again)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		all, synced := secrets.All()
		if !synced {
			k.report(secrets.Err())
			timer.Reset(again)
			continue
		}
		next, err := k.pass(ctx, all[k.Namespace+"/"+k.Name], time.Now())
		k.report(err)
		timer.Reset(max(time.Until(next), again))
	}
}

func (k *Manager) collection() string { return "/api/v1/namespaces/" + k.Namespace + "/secrets" }

// report logs an error once.
func (k *Manager) report(err error) {
	if k.reported.New(err) {
		k.Log.Error("the certificate cannot be kept", "secret", k.Namespace+"/"+k.Name, "error", err)
	}
}

// pass uses what the Secret has and writes what it lacks. It returns when the next pass is due if the Secret does not
// change.
func (k *Manager) pass(ctx context.Context, s *secret, now time.Time) (next time.Time, err error) {
	if s == nil {
		return now.Add(serverLife),
			errors.New("it does not exist, and the controller may not create it: apply the manifests of acceld")
	}
	data := maps.Clone(s.Data)
	var verb string
	switch {
	case len(data) == 0:
		verb = "made"
		if data, err = made(now, k.Names); err != nil {
			return now.Add(again), fmt.Errorf("cannot make certificates: %w", err)
		}
	default:
		config, err := usable(data)
		if err != nil {
			// the watch reports a change of the Secret
			return now.Add(serverLife), fmt.Errorf("%w; the previous ones stay in force", err)
		}
		k.mu.Lock()
		k.config = config
		k.mu.Unlock()
		if s.Annotations[madeAnnotation] != madeBy {
			return now.Add(serverLife), nil // whoever maintains it renews it
		}
		if at := due(config.Certificates[0].Leaf, k.Names); now.Before(at) {
			return at, nil
		}
		verb = "renewed"
		if err := signServer(data, now, k.Names); err != nil {
			return now.Add(again), err
		}
	}
	patch := map[string]any{"data": data, "metadata": map[string]any{
		"resourceVersion": s.ResourceVersion, "annotations": map[string]string{madeAnnotation: madeBy},
	}}
	limited, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	err = k.API.Do(limited, http.MethodPatch, k.collection()+"/"+k.Name, url.Values{"fieldManager": {madeBy}}, patch,
		nil)
	switch {
	case apierrors.IsConflict(err): // another replica was faster; the watch shows what it wrote
		return now.Add(again), nil
	case err != nil:
		return now.Add(again), fmt.Errorf("cannot write it: %w", err)
	}
	k.Log.Info("certificate written", "how", verb, "secret", k.Namespace+"/"+k.Name, "until",
		now.Add(serverLife).UTC().Format(time.DateOnly))
	return now.Add(again), nil
}
