package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/acceld/acceld/accel"
)

// agent tells what the agent says of a kind, each time it is something else. It is answered when there is news.
func (s *sheet) agent(ctx context.Context, url, kind string) error {
	tag, last := "", ""
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if tag != "" {
			req.Header.Set("If-None-Match", tag)
			req.Header.Set("Prefer", "wait=20")
		}
		m, now, err := machine(req)
		if err != nil { // it is not there yet, or starts again
			time.Sleep(50 * time.Millisecond)
			tag = ""
			continue
		}
		if now == tag {
			continue
		}
		if tag = now; last != about(m, kind) {
			last = about(m, kind)
			s.note("agent", last)
		}
	}
}

func machine(req *http.Request) (m accel.Machine, tag string, err error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return m, "", err
	}
	defer resp.Body.Close()
	tag = resp.Header.Get("ETag")
	switch resp.StatusCode {
	case http.StatusNotModified:
		return m, tag, nil
	case http.StatusOK:
		return m, tag, json.NewDecoder(resp.Body).Decode(&m)
	}
	return m, "", fmt.Errorf("status %d", resp.StatusCode)
}

// about is what is told of a machine.
func about(m accel.Machine, kind string) string {
	replicas := 0
	if d := m.Want.Kinds[kind]; d != nil && d.Sharing != nil {
		replicas = d.Sharing.Replicas
	}
	return fmt.Sprintf("usable=%d replicas=%d", accel.CountUsable(m.Have[kind].Accelerators), replicas)
}
