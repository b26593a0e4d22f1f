package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/controller/fit"
)

// maxBody is more than the names of 100,000 nodes and the largest pod that the API takes.
const maxBody = 64 << 20

// args is ExtenderArgs, as far as it is read. Names in JSON are those of Go, whatever their case.
type args struct {
	Pod       *pod
	NodeNames *[]string
}

// pod is what is read of a pod in a request.
type pod struct {
	Metadata struct {
		Name, Namespace, UID string
		Annotations          map[string]string
	}
	Spec struct {
		InitContainers, Containers []corev1.Container
	}
}

// request is the pod of a request as the books see it.
func (p *pod) request(r *fit.Rules) fit.Request {
	m := p.Metadata
	return fit.NewRequest(r, m.UID, m.Namespace, m.Name, annotations(r, m.Annotations), asks(r, p.Spec.InitContainers, p.Spec.Containers))
}

// bindingArgs is ExtenderBindingArgs.
type bindingArgs struct {
	PodName, PodNamespace, PodUID, Node string
}

// wrong is an error with the HTTP status that it is answered with.
type wrong struct {
	status int
	text   string
}

func (w wrong) Error() string { return w.text }

// decode reads the body of a request.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	if r.Method != http.MethodPost {
		return wrong{http.StatusMethodNotAllowed, "only POST is answered here"}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return wrong{http.StatusUnsupportedMediaType, "the body must be application/json"}
	}
	body := http.MaxBytesReader(w, r.Body, maxBody)
	data, err := read(body, r.ContentLength)
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return wrong{http.StatusRequestEntityTooLarge, "the body is too large"}
		}
		return wrong{http.StatusBadRequest, fmt.Sprintf("cannot read the body: %v", err)}
	}
	unmarshal := func() error { return json.Unmarshal(data, into) }
	if a, ok := into.(*args); ok {
		unmarshal = func() error { return readArgs(data, a) }
	}
	if err := unmarshal(); err != nil {
		return wrong{http.StatusBadRequest, fmt.Sprintf("cannot read the body: %v", err)}
	}
	return nil
}

// read reads everything, into one piece of memory where the length is known.
func read(r io.Reader, length int64) ([]byte, error) {
	if length < 0 || length > maxBody {
		return io.ReadAll(r)
	}
	data := make([]byte, length)
	_, err := io.ReadFull(r, data)
	return data, err
}

// verdict is what filter found out about one node.
type verdict struct {
	node  string
	cause fit.Cause
}

// filterResult writes ExtenderFilterResult. A node that not even an end of others would help is in both maps: the scheduler
// then takes the second, and who knows the first one only is not misled.
func filterResult(b []byte, all []verdict) []byte {
	b = append(b, `{"Nodes":{"metadata":{},"items":[]},"NodeNames":[`...)
	first := true
	comma := func() {
		if !first {
			b = append(b, ',')
		}
		first = false
	}
	for _, v := range all {
		if v.cause == fit.Fits {
			comma()
			b = appendString(b, v.node)
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
		for _, v := range all {
			if m.want(v.cause) {
				comma()
				b = append(appendString(b, v.node), ':')
				b = appendString(b, v.cause.String())
			}
		}
	}
	return append(b, `},"Error":""}`...)
}

// appendString writes a JSON string; names of nodes never need to be escaped.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil { // a string always can
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
func priorities(b []byte, names []string, scores []int) []byte {
	b = append(b, '[')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"Host":`...)
		b = appendString(b, name)
		b = append(b, `,"Score":`...)
		b = strconv.AppendInt(b, int64(scores[i]), 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

// answer sends JSON.
func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // it is JSON and says so; who has gone needs no answer
}

// fail sends an error in the form that every result of the protocol has.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusOK // the scheduler shows the text of an answer, and of a failure only its number
	var e wrong
	if errors.As(err, &e) {
		status = e.status
	}
	body := append([]byte(`{"Error":`), appendString(nil, err.Error())...)
	answer(w, status, append(body, '}'))
}
