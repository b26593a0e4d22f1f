package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/controller/fit"
)

// maxBody is more than the names of 100,000 nodes and the largest pod that the API takes.
const maxBody = 64 << 20

// args is the part of ExtenderArgs that is read. JSON names match the Go names, ignoring case.
type args struct {
	Pod       *pod
	NodeNames *names
}

// pod holds the fields that are read of a pod in a request.
type pod struct {
	Metadata struct {
		Name, Namespace, UID string
		Annotations          map[string]string
	}
	Spec struct {
		InitContainers, Containers []container
	}
}

// container holds the fields that are read of a container. They are a small part of what the scheduler sends.
type container struct {
	Name          string
	RestartPolicy *corev1.ContainerRestartPolicy
	Resources     struct{ Limits, Requests fit.Quantities }
}

func containers(all []container) []corev1.Container {
	out := make([]corev1.Container, len(all))
	for i, c := range all {
		out[i].Name, out[i].RestartPolicy = c.Name, c.RestartPolicy
		out[i].Resources.Limits = resources(c.Resources.Limits)
		out[i].Resources.Requests = resources(c.Resources.Requests)
	}
	return out
}

func resources(all fit.Quantities) corev1.ResourceList {
	out := make(corev1.ResourceList, len(all))
	for name, q := range all {
		out[corev1.ResourceName(name)] = q
	}
	return out
}

// request converts the pod of a request.
func (p *pod) request(r *fit.Rules) fit.Request {
	m := p.Metadata
	return fit.NewRequest(r, fit.NewUID(m.UID), m.Namespace, m.Name, annotations(r, m.Annotations),
		asks(r, containers(p.Spec.InitContainers), containers(p.Spec.Containers)))
}

// bindingArgs is ExtenderBindingArgs.
type bindingArgs struct {
	PodName, PodNamespace, PodUID, Node string
}

// wrong is an error with its HTTP status.
type wrong struct {
	status int
	text   string
}

func (w wrong) Error() string { return w.text }

// decode reads the body of a request.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	data, err := body(w, r, nil)
	if err != nil {
		return err
	}
	return understood(json.Unmarshal(data, into))
}

// understood marks an error of reading the body as the client's.
func understood(err error) error {
	if err != nil {
		return wrong{http.StatusBadRequest, fmt.Sprintf("cannot read the body: %v", err)}
	}
	return nil
}

// body reads the body of a request into room, if that is large enough.
func body(w http.ResponseWriter, r *http.Request, room []byte) ([]byte, error) {
	if r.Method != http.MethodPost {
		return nil, wrong{http.StatusMethodNotAllowed, "only POST is answered here"}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, wrong{http.StatusUnsupportedMediaType, "the body must be application/json"}
	}
	data, err := read(http.MaxBytesReader(w, r.Body, maxBody), r.ContentLength, room)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, wrong{http.StatusRequestEntityTooLarge, "the body is too large"}
	}
	return data, understood(err)
}

// read reads everything, into one buffer if the length is known.
func read(r io.Reader, length int64, room []byte) ([]byte, error) {
	if length < 0 || length > maxBody {
		return io.ReadAll(r)
	}
	data := slices.Grow(room[:0], int(length))[:length]
	_, err := io.ReadFull(r, data)
	return data, err
}

// filterResult writes ExtenderFilterResult. A node that the end of other pods cannot help is in both maps: the
// scheduler then uses FailedAndUnresolvableNodes, and a client that knows only FailedNodes still sees that the node
// failed.
func filterResult(b []byte, all *names, causes []fit.Cause) []byte {
	b = append(b, `{"Nodes":{"metadata":{},"items":[]},"NodeNames":[`...)
	var texts [fit.UnknownNode + 1][]byte // in quotes, once needed
	first := true
	comma := func() {
		if !first {
			b = append(b, ',')
		}
		first = false
	}
	for i, cause := range causes {
		if cause == fit.Fits {
			comma()
			b = append(b, all.quoted(i)...)
		}
	}
	for _, m := range []struct {
		key  string
		want func(fit.Cause) bool
	}{
		{`],"FailedNodes":{`, func(c fit.Cause) bool { return c != fit.Fits }},
		{`},"FailedAndUnresolvableNodes":{`, fit.Cause.Final},
	} {
		b, first = append(b, m.key...), true
		for i, cause := range causes {
			if m.want(cause) {
				comma()
				if texts[cause] == nil {
					texts[cause] = appendString(nil, cause.String())
				}
				b = append(append(append(b, all.quoted(i)...), ':'), texts[cause]...)
			}
		}
	}
	return append(b, `},"Error":""}`...)
}

// appendString appends a JSON string. Names of nodes never need escaping.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil { // cannot happen for a string
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// priorities writes HostPriorityList.
func priorities(b []byte, all *names, scores []int) []byte {
	b = append(b, '[')
	for i, score := range scores {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"Host":`...)
		b = append(b, all.quoted(i)...)
		b = append(b, `,"Score":`...)
		b = strconv.AppendInt(b, int64(score), 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

// answer sends JSON.
func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// fail sends an error in the form that every result of the protocol has.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusOK // of any other status the scheduler shows the number, not the text
	var e wrong
	if errors.As(err, &e) {
		status = e.status
	}
	body := append([]byte(`{"Error":`), appendString(nil, err.Error())...)
	answer(w, status, append(body, '}'))
}
