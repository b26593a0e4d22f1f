// Package screens looks at the pages for people in a real browser, Chromium without a window: the status page of the
// agent, the fleet page of the controller and the site of the docs, on a desktop, on a phone, light and dark; and it
// films a terminal. `make screenshots` installs the browser and writes what it shows as pictures; without
// ACCELD_SCREENS the tests are skipped, because the browser is large and slow to start.
package screens

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Browser is a running browser with one page, spoken with over pipes (Chrome DevTools Protocol,
// --remote-debugging-pipe: messages of JSON that end with a zero byte).
type Browser struct {
	cmd     *exec.Cmd
	in      *os.File
	session string
	dir     string // its profile

	mu      sync.Mutex
	id      int
	waiting map[int]chan message
	// complaints are errors and violations of the page's policy that the browser has told.
	complaints []string
	closed     error
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
}

// Start starts the program with a profile of its own.
func Start(ctx context.Context, program string) (*Browser, error) {
	dir, err := os.MkdirTemp("", "screens")
	if err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &Browser{in: in, dir: dir, waiting: map[int]chan message{}}
	b.cmd = exec.CommandContext(ctx, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-extensions",
		"--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir="+dir,
		"--remote-debugging-pipe", "about:blank")
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	_, _ = theirIn.Close(), theirOut.Close()
	go b.read(out)
	var target struct{ TargetID string }
	if err := b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	var attached struct{ SessionID string }
	if err := b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&attached); err != nil {
		return nil, err
	}
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		if err := b.Call(domain+".enable", nil, nil); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Close ends the browser and removes its profile, into which its helper processes write until they have ended too.
func (b *Browser) Close() {
	_ = b.Call("Browser.close", nil, nil)
	_ = b.in.Close()
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	_ = b.cmd.Wait()
	for range 50 {
		if os.RemoveAll(b.dir) == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// read takes answers and what the browser tells by itself.
func (b *Browser) read(out io.Reader) {
	r := bufio.NewReader(out)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.closed = fmt.Errorf("the browser has ended: %w", err)
			for _, c := range b.waiting {
				close(c)
			}
			b.waiting = map[int]chan message{}
			b.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[m.ID]; m.ID != 0 && c != nil {
			delete(b.waiting, m.ID)
			c <- m
		}
		if complaint := complains(m); complaint != "" {
			b.complaints = append(b.complaints, complaint)
		}
		b.mu.Unlock()
	}
}

// complains is what a message says that should not be.
func complains(m message) string {
	switch m.Method {
	case "Runtime.exceptionThrown":
		return string(m.Params)
	case "Log.entryAdded":
		var p struct {
			Entry struct{ Level, Text, URL string }
		}
		if json.Unmarshal(m.Params, &p) == nil && p.Entry.Level == "error" {
			return p.Entry.Text + " " + p.Entry.URL
		}
	}
	return ""
}

// Complaints are what the browser has complained about since the last call.
func (b *Browser) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.complaints
	b.complaints = nil
	return all
}

// Call calls a method of the protocol and reads its result.
func (b *Browser) Call(method string, params, into any) error {
	b.mu.Lock()
	if b.closed != nil {
		b.mu.Unlock()
		return b.closed
	}
	b.id++
	id, answer := b.id, make(chan message, 1)
	b.waiting[id] = answer
	b.mu.Unlock()
	body := map[string]any{"id": id, "method": method}
	if params != nil {
		body["params"] = params
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		body["sessionId"] = b.session
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return errors.New("the browser has ended")
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case into == nil:
			return nil
		}
		return json.Unmarshal(m.Result, into)
	case <-time.After(time.Minute):
		return fmt.Errorf("%s: no answer in a minute", method)
	}
}

// Look is how a page is looked at.
type Look struct {
	Name          string
	Width, Height int
	Phone, Dark   bool
}

// Open shows a page in a look and waits until it is loaded.
func (b *Browser) Open(url string, l Look) error {
	scale := 1
	if l.Phone {
		scale = 2
	}
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	for _, c := range []struct {
		method string
		params map[string]any
	}{
		{"Emulation.setDeviceMetricsOverride", map[string]any{
			"width": l.Width, "height": l.Height,
			"deviceScaleFactor": scale, "mobile": l.Phone,
		}},
		{
			"Emulation.setEmulatedMedia",
			map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}},
		},
		{"Page.navigate", map[string]any{"url": url}},
	} {
		if err := b.Call(c.method, c.params, nil); err != nil {
			return err
		}
	}
	return b.Until(`document.readyState === "complete" && location.href !== "about:blank"`, 30*time.Second)
}

// Eval evaluates JavaScript and reads its value.
func (b *Browser) Eval(script string, into any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	if err := b.Call("Runtime.evaluate", map[string]any{
		"expression": script, "returnByValue": true,
		"awaitPromise": true,
	}, &r); err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s", script, r.ExceptionDetails)
	}
	return json.Unmarshal(r.Result.Value, into)
}

// Until waits until JavaScript is true.
func (b *Browser) Until(script string, limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var yes bool
		if err := b.Eval(script, &yes); err == nil && yes {
			return nil
		}
	}
	return fmt.Errorf("%s: not true in %s", script, limit)
}

// Picture is the whole page as PNG.
func (b *Browser) Picture() ([]byte, error) {
	var r struct{ Data string }
	if err := b.Call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true},
		&r); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(r.Data)
}

// Screen is what is in the window, as WebP.
func (b *Browser) Screen() ([]byte, error) {
	var r struct{ Data string }
	if err := b.Call("Page.captureScreenshot", map[string]any{"format": "webp", "quality": 85}, &r); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(r.Data)
}
