package growth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/test/bench/usage"
	"github.com/acceld/acceld/test/fleet"
)

// filterArgs, filterResult and hostPriority are ExtenderArgs, ExtenderFilterResult and HostPriority of
// k8s.io/kube-scheduler/extender/v1, which the scheduler encodes and decodes with encoding/json.
type (
	filterArgs struct {
		Pod       *corev1.Pod
		Nodes     *corev1.NodeList
		NodeNames *[]string
	}
	filterResult struct {
		Nodes                      *corev1.NodeList
		NodeNames                  *[]string
		FailedNodes                map[string]string
		FailedAndUnresolvableNodes map[string]string
		Error                      string
	}
	hostPriority struct {
		Host  string
		Score int64
	}
)

// server answers requests of the scheduler.
type server struct {
	name, url string // the URL without the verb
	pid       int
	http      *http.Client
	room      bytes.Buffer
}

// ask sends a request and reads the whole answer, as bytes that the next call overwrites.
func (s *server) ask(verb string, body []byte) (status int, answer []byte, err error) {
	got, err := s.http.Post(s.url+verb, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	defer got.Body.Close()
	s.room.Reset()
	_, err = s.room.ReadFrom(got.Body)
	return got.StatusCode, s.room.Bytes(), err
}

// asking is a pod of the scheduler's queue, with all that a pod has.
func asking(millicores int) *corev1.Pod {
	p := fleet.WholePod(0, 0, fmt.Sprint(millicores))
	p.Name, p.UID, p.Spec.NodeName, p.Annotations = "asking", "uid-asking", "", nil
	p.Status.Phase = corev1.PodPending
	return p
}

func encoded(t *testing.T, x any) []byte {
	t.Helper()
	b, err := json.Marshal(x)
	check(t, err)
	return b
}

// question is what the scheduler asks about nodes whose names the extender knows.
func question(t *testing.T, millicores int, names []string) []byte {
	t.Helper()
	return encoded(t, filterArgs{Pod: asking(millicores), NodeNames: &names})
}

// upTo are the numbers of n nodes.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// series is how long requests took.
type series []time.Duration

// at is a quantile; the median is at .5.
func (s series) at(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// answers are one kind of request: how long the controller takes, a server that only decodes and encodes, and decoding
// and encoding in this process, without a connection.
type answers struct {
	name               string
	requests           int // that follow each other, each with an answer
	ours, floor, alone series
	// oursCPU and floorCPU are the processor time of a server for each request.
	oursCPU, floorCPU time.Duration
}

// exchange is a request with its right answer.
type exchange struct {
	verb         string
	body, answer []byte
	decoded      any // the answer, as its type
}

// compare times all kinds of requests about n nodes, the contenders in turns.
func (r *rig) compare(n int, ours, least *server) (out []answers) {
	r.t.Helper()
	nodes := upTo(n)
	for _, c := range []struct {
		name       string
		millicores int
		verbs      []string
	}{
		{"filter, all fit", small, []string{"filter"}},
		{"filter, two of three fit", middle, []string{"filter"}},
		{"filter, none fits", large, []string{"filter"}},
		{"filter and prioritize, two of three fit", middle, []string{"filter", "prioritize"}},
	} {
		var all []exchange
		for _, verb := range c.verbs {
			all = append(all, r.exchange(verb, nodes, c.millicores, ours))
		}
		out = append(out, r.time(c.name, all, ours, least))
	}
	return out
}

// exchange asks the controller and holds its answer against the model.
func (r *rig) exchange(verb string, nodes []int, millicores int, ours *server) exchange {
	r.t.Helper()
	names, not := split(nodes, millicores)
	x := exchange{verb: verb}
	if verb == "filter" {
		names = nil
		for _, i := range nodes {
			names = append(names, fleet.WholeName(i))
		}
	}
	x.body = question(r.t, millicores, names)
	status, answer, err := ours.ask(verb, x.body)
	check(r.t, err)
	x.answer = slices.Clone(answer)
	if verb == "filter" {
		var got filterResult
		if err := json.Unmarshal(answer, &got); err != nil || status != http.StatusOK || !got.right(nodes, millicores) {
			r.t.Fatalf("filter for %d millicores: status %d, %v, not the %d nodes that the model has", millicores, status, err,
				len(nodes)-len(not))
		}
		x.decoded = got
		return x
	}
	var got []hostPriority
	if err := json.Unmarshal(answer, &got); err != nil || status != http.StatusOK || len(got) != len(names) {
		r.t.Fatalf("prioritize: status %d, %v, %d nodes, want %d", status, err, len(got), len(names))
	}
	for i, p := range got {
		if p.Host != names[i] || p.Score < 0 || p.Score > 10 {
			r.t.Fatalf("prioritize: %+v of %s", p, names[i])
		}
	}
	x.decoded = got
	return x
}

// time times exchanges that follow each other. The contenders are asked in turns, so that other work on the machine
// hits all of them.
func (r *rig) time(name string, all []exchange, ours, least *server) answers {
	r.t.Helper()
	const warmup, block = 10, 10
	for _, x := range all {
		if status, text, err := least.ask("prime/"+x.verb, x.answer); err != nil || status != http.StatusOK {
			r.t.Fatalf("the floor does not take the answer to %s: %d, %s, %v", x.verb, status, text, err)
		}
	}
	a := answers{name: name, requests: len(all)}
	timed := func(s *server, n int, into *series, cpu *time.Duration) {
		before := s.processor(r.t)
		for range n {
			*into = append(*into, r.took(s, all))
		}
		*cpu += s.processor(r.t) - before
	}
	var before series
	var beforeCPU time.Duration
	timed(ours, warmup, &before, &beforeCPU)
	timed(least, warmup, &before, &beforeCPU)
	blocks := max(1, *requests/block)
	for range blocks {
		timed(ours, block, &a.ours, &a.oursCPU)
		timed(least, block, &a.floor, &a.floorCPU)
	}
	a.oursCPU, a.floorCPU = a.oursCPU/time.Duration(blocks*block), a.floorCPU/time.Duration(blocks*block)
	for range *requests {
		began := time.Now()
		for _, x := range all {
			x.decodeAndEncode(r.t)
		}
		a.alone = append(a.alone, time.Since(began))
	}
	return a
}

// processor is the time that the server has run.
func (s *server) processor(t *testing.T) time.Duration {
	t.Helper()
	used, err := usage.Processor(s.pid)
	check(t, err)
	return used
}

// took is how long a server takes for exchanges that follow each other, until the last byte of each answer.
func (r *rig) took(s *server, all []exchange) (sum time.Duration) {
	r.t.Helper()
	for _, x := range all {
		began := time.Now()
		status, answer, err := s.ask(x.verb, x.body)
		sum += time.Since(began)
		if err != nil || status != http.StatusOK || s.name == program && !bytes.Equal(answer, x.answer) {
			r.t.Fatalf("%s, %s: status %d, %v, another answer than at first", s.name, x.verb, status, err)
		}
	}
	return sum
}

// decodeAndEncode decodes the request and encodes the answer, and does nothing else.
func (x *exchange) decodeAndEncode(t *testing.T) {
	var args filterArgs
	if err := json.Unmarshal(x.body, &args); err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(x.decoded); err != nil {
		t.Fatal(err)
	}
}

// prime is what the floor does with the answer that it shall encode.
func prime(verb string, body io.Reader) (any, error) {
	if verb == "filter" {
		var answer filterResult
		err := json.NewDecoder(body).Decode(&answer)
		return answer, err
	}
	var answer []hostPriority
	err := json.NewDecoder(body).Decode(&answer)
	return answer, err
}
