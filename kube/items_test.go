package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// readItems returns the objects of an answer, and where the next page begins.
func readItems(answer string) (got []string, next string, err error) {
	i := &items{take: func(raw json.RawMessage) { got = append(got, string(raw)) }}
	err = i.readStream(strings.NewReader(answer))
	return got, i.meta.Continue, err
}

func TestItems(t *testing.T) {
	for answer, want := range map[string]string{
		`{"kind":"List","metadata":{"continue":"x"},"items":[{"a":1},{"b":[2]}]}` + "\n": `[{"a":1} {"b":[2]}] "x" <nil>`,
		`{"items":[7],"metadata":{"continue":"y"},"more":{"items":[8]}}`:                 `[7] "y" <nil>`,
		`{"metadata":{},"items":null}`:                                                   `[] "" <nil>`,
		`{"metadata":null}`:                                                              `[] "" <nil>`,
		`{}`:                                                                             `[] "" <nil>`,
		``:                                                                               `[] "" EOF`,
		`[]`:                                                                             `[] "" got [, want a list`,
		`{"items":{}}`:                                                                   `[] "" cannot read items: got {, want an array`,
		`{"items":7}`:                                                                    `[] "" cannot read items: got 7, want an array`,
		`{"items":[{"a":1},{"b"`:                                                         `[{"a":1}] "" cannot read items: unexpected EOF`,
		`{"items":[{"a":1}`:                                                              `[{"a":1}] "" cannot read items: EOF`,
		`{"items":[{"a":1}]`:                                                             `[{"a":1}] "" EOF`,
		`{"metadata":[]}`:                                                                `[] "" cannot read metadata: json: cannot unmarshal array`,
	} {
		got, next, err := readItems(answer)
		if text := fmt.Sprintf("%v %q %v", got, next, err); !strings.HasPrefix(text, want) {
			t.Errorf("%s: %s, want %s", answer, text, want)
		}
	}
}

// TestItemsOnTheWire: the objects of an answer are handed over before all of it has arrived. A refusal, and an answer
// that ends early, are errors.
func TestItemsOnTheWire(t *testing.T) {
	taken := make(chan struct{})
	d := documented(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/slow":
			fmt.Fprint(w, `{"metadata":{"continue":"x"},"items":[{"name":"a"},`)
			w.(http.Flusher).Flush()
			select {
			case <-taken:
			case <-r.Context().Done():
			}
			fmt.Fprint(w, `{"name":"b"}]}`)
		case "/short":
			fmt.Fprint(w, `{"items":[{"name":"a"},`)
		default:
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}`)
		}
	})
	var got []string
	list := &items{take: func(raw json.RawMessage) {
		if got = append(got, string(raw)); len(got) == 1 {
			close(taken)
		}
	}}
	if err := d.Do(t.Context(), http.MethodGet, "/slow", nil, nil, list); err != nil || len(got) != 2 ||
		list.meta.Continue != "x" {
		t.Errorf("%q %+v: %v", got, list.meta, err)
	}
	none := &items{take: func(json.RawMessage) {}}
	if err := d.Do(t.Context(), http.MethodGet, "/short", nil, nil, none); err == nil ||
		!strings.Contains(err.Error(), "cannot read the answer to GET /short: cannot read items") {
		t.Errorf("an answer that ends early: %v", err)
	}
	if err := d.Do(t.Context(), http.MethodGet, "/gone", nil, nil, none); !apierrors.IsResourceExpired(err) ||
		!strings.Contains(err.Error(), "too old") {
		t.Errorf("a refusal: %v", err)
	}
}

// FuzzItems: whatever an API server answers, the objects are those that the answer has as a whole.
func FuzzItems(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"continue":"x"},"items":[{"a":1},[2],null]}`, `{"items":null}`, `{"items":[1,`, `[{"items":[]}]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		got, next, err := readItems(answer)
		var whole map[string]json.RawMessage
		if json.Unmarshal([]byte(answer), &whole) != nil || strings.Count(answer, "items")+strings.Count(answer, "metadata") > 2 ||
			strings.Contains(answer, `\`) {
			return // a field twice: which one counts is open
		}
		var want struct {
			Metadata struct{ Continue string }
			Items    []json.RawMessage
		}
		text, _ := json.Marshal(map[string]json.RawMessage{"metadata": whole["metadata"], "items": whole["items"]})
		if bad := json.Unmarshal(text, &want); bad != nil || err != nil {
			return
		}
		if len(got) != len(want.Items) || next != want.Metadata.Continue {
			t.Errorf("%d objects and %q, want %d and %q", len(got), next, len(want.Items), want.Metadata.Continue)
		}
	})
}
