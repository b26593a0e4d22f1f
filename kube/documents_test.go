package kube

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// documented returns Documents of an API server that handle implements.
func documented(t *testing.T, handle http.HandlerFunc) Documents {
	t.Helper()
	srv := httptest.NewTLSServer(handle)
	t.Cleanup(srv.Close)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	client, err := NewClient(kubeconfig(t, srv.URL, cert, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	return client.Documents
}

type thing struct {
	Name string `json:"name"`
}

func TestDocuments(t *testing.T) {
	d := documented(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/apis/example.com/v1/things":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w,
				`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no such thing","reason":"NotFound","code":404}`)
		case r.URL.Query().Get("watch") == "true":
			fmt.Fprint(w, `{"type":"ADDED","object":{"name":"a"}}`)
		case r.Method == http.MethodPost && r.Header.Get("Content-Type") == "application/json":
			w.Write(body)
		case r.URL.Query().Get("fieldSelector") == "spec.node=a,spec.driver=b":
			fmt.Fprint(w, `{"name":"chosen","unknown":[1]}`)
		}
	})
	const path = "/apis/example.com/v1/things"
	var got thing
	if err := d.Do(t.Context(), http.MethodPost, path, nil, thing{"new"}, &got); err != nil || got.Name != "new" {
		t.Errorf("create: %+v %v", got, err)
	}
	if err := d.Do(t.Context(), http.MethodGet, path, url.Values{"fieldSelector": {"spec.node=a,spec.driver=b"}}, nil,
		&got); err != nil || got.Name != "chosen" {
		t.Errorf("list: %+v %v", got, err)
	}
	if err := d.Do(t.Context(), http.MethodDelete, path+"/x", nil, nil, nil); !apierrors.IsNotFound(err) ||
		!strings.Contains(err.Error(), "no such thing") {
		t.Errorf("delete: %v", err)
	}
	stream, err := d.Watch(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var e struct{ Object thing }
	if err := json.NewDecoder(stream).Decode(&e); err != nil || e.Object.Name != "a" {
		t.Errorf("watch: %+v %v", e, err)
	}
}

func TestDocumentsUnreadable(t *testing.T) {
	d := documented(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"name":`) })
	if err := d.Do(context.Background(), http.MethodGet, "/x", nil, nil, &thing{}); err == nil ||
		!strings.Contains(err.Error(), "cannot read the answer to GET /x") {
		t.Errorf("%v", err)
	}
}
