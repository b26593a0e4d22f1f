package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	clienttesting "k8s.io/client-go/testing"
	resource "k8s.io/kubernetes/pkg/apis/resource"
	conversion "k8s.io/kubernetes/pkg/apis/resource/v1"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
)

// apiServer gives the plugin the objects that the kubelet sees, and holds what the plugin writes to the API's own types
// and rules.
type apiServer struct {
	t      *testing.T
	client *fake.Clientset
	wipes  atomic.Int32 // how often a kubelet deleted all slices
	// fault, if any, is what the plugin is answered that asks for a claim.
	fault atomic.Pointer[func(context.Context) error]
}

// failClaims makes the plugin's questions for claims fail; nil lets them succeed again.
func (s *apiServer) failClaims(fault func(context.Context) error) {
	s.fault.Store(nil)
	if fault != nil {
		s.fault.Store(&fault)
	}
}

// newAPIServer makes one with a node. The fake does not know how to delete a collection, which a kubelet does at its
// start.
func newAPIServer(t *testing.T, node string) *apiServer {
	s := &apiServer{t: t, client: fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node,
		UID:  "node-uid",
	}})}
	s.client.PrependReactor("delete-collection", "resourceslices", func(a clienttesting.Action) (bool, runtime.Object,
		error,
	) {
		// The fake holds its lock during a reaction: the tracker is asked past it.
		gvr := resourceapi.SchemeGroupVersion.WithResource("resourceslices")
		list, err := s.client.Tracker().List(gvr, resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"), "")
		if err != nil {
			return true, nil, err
		}
		for _, x := range list.(*resourceapi.ResourceSliceList).Items {
			if !matches(a.(clienttesting.DeleteCollectionAction).GetListRestrictions().Fields, &x) {
				continue
			}
			if err := s.client.Tracker().Delete(gvr, "", x.Name); err != nil {
				return true, nil, err
			}
		}
		s.wipes.Add(1)
		return true, nil, nil
	})
	return s
}

// matches reports whether a slice is one of those that a selector of fields means; the fake knows none.
func matches(selector fields.Selector, s *resourceapi.ResourceSlice) bool {
	set := fields.Set{"spec.driver": s.Spec.Driver}
	if s.Spec.NodeName != nil {
		set["spec.nodeName"] = *s.Spec.NodeName
	}
	return selector.Matches(set)
}

func (s *apiServer) slices() resourceclient.ResourceSliceInterface {
	return s.client.ResourceV1().ResourceSlices()
}

func (s *apiServer) Do(ctx context.Context, method, p string, query url.Values, body, into any) error {
	var answer any
	var err error
	switch resource := strings.TrimPrefix(p, "/apis/resource.k8s.io/v1/"); {
	case strings.HasPrefix(p, "/api/v1/nodes/"):
		answer, err = s.client.CoreV1().Nodes().Get(ctx, path.Base(p), metav1.GetOptions{})
	case strings.HasPrefix(resource, "namespaces/test/resourceclaims/"):
		if fault := s.fault.Load(); fault != nil {
			return (*fault)(ctx)
		}
		answer, err = s.client.ResourceV1().ResourceClaims("test").Get(ctx, path.Base(p), metav1.GetOptions{})
	case strings.HasPrefix(resource, "deviceclasses/") && method == http.MethodGet:
		answer, err = s.client.ResourceV1().DeviceClasses().Get(ctx, path.Base(p), metav1.GetOptions{})
	case resource == "deviceclasses" && method == http.MethodPost:
		answer, err = s.client.ResourceV1().DeviceClasses().Create(ctx, decoded[resourceapi.DeviceClass](s.t, body),
			metav1.CreateOptions{})
	case method == http.MethodGet:
		answer, err = s.list(ctx, query)
	case method == http.MethodPost:
		answer, err = s.slices().Create(ctx, s.checked(body), metav1.CreateOptions{})
	case method == http.MethodPut:
		answer, err = s.slices().Update(ctx, s.checked(body), metav1.UpdateOptions{})
	case method == http.MethodDelete:
		err = s.slices().Delete(ctx, path.Base(p), metav1.DeleteOptions{})
	}
	if err != nil || into == nil {
		return err
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// list returns the slices that a query asks for.
func (s *apiServer) list(ctx context.Context, query url.Values) (*resourceapi.ResourceSliceList, error) {
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	all, err := s.slices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all.Items = slices.DeleteFunc(all.Items, func(x resourceapi.ResourceSlice) bool { return !matches(selector, &x) })
	return all, nil
}

// checked is a slice that the API server would take.
func (s *apiServer) checked(body any) *resourceapi.ResourceSlice {
	slice := decoded[resourceapi.ResourceSlice](s.t, body)
	var internal resource.ResourceSlice
	if err := conversion.Convert_v1_ResourceSlice_To_resource_ResourceSlice(slice.DeepCopy(), &internal,
		nil); err != nil {
		s.t.Errorf("a slice is not one: %v", err)
	}
	if faults := validation.ValidateResourceSlice(&internal); len(faults) > 0 {
		s.t.Errorf("the API server would refuse %s: %v", slice.Name, faults.ToAggregate())
	}
	return slice
}

// decoded reads what the plugin sends strictly.
func decoded[T any](t *testing.T, body any) *T {
	data, err := json.Marshal(body)
	if err != nil {
		t.Error(err)
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	out := new(T)
	if err := d.Decode(out); err != nil {
		t.Errorf("%T: %v", *out, err)
	}
	return out
}

func (s *apiServer) Watch(ctx context.Context, _ string, query url.Values) (io.ReadCloser, error) {
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	w, err := s.slices().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	r, out := io.Pipe()
	go func() {
		defer out.Close()
		defer w.Stop()
		for {
			select {
			case e := <-w.ResultChan():
				if x, ok := e.Object.(*resourceapi.ResourceSlice); ok && !matches(selector, x) {
					continue
				}
				data, err := json.Marshal(map[string]any{"type": e.Type, "object": e.Object})
				if err == nil {
					_, err = fmt.Fprintf(out, "%s\n", data)
				}
				if err != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return r, nil
}
