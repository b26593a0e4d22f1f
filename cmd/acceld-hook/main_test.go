package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/runtime/gate"
)

// maxSize is the budget of the stripped program, in bytes.
const maxSize = 3 << 20

func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "acceld-hook")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the hook: %v\n%s", err, out)
	}
	return program
}

func TestHook(t *testing.T) {
	program := build(t)
	if st, err := os.Stat(program); err != nil || st.Size() > maxSize {
		t.Errorf("program has %d bytes, %v; the budget is %d", st.Size(), err, maxSize)
	}
	const (
		published = `{"version":1,"devices":[
			{"id":"0000:01:00.0","kind":"qemu-edu","nodes":[{"path":"/dev/edu0","major":240,"minor":0}],"ready":false,"reason":"DeviceUnhealthy","message":"too\nhot"},
			{"id":"0000:02:00.0","kind":"qemu-edu","nodes":[{"path":"/dev/edu1","major":240,"minor":1}],"ready":true},
			{"id":"0000:03:00.0","kind":"qemu-edu","ready":false,"reason":"DeviceGone"}]}`
		chosen = `{"version":1,"devices":[
			{"id":"0000:01:00.0","kind":"qemu-edu","nodes":[{"path":"/dev/edu0","major":240,"minor":0}],"ready":true},
			{"id":"0000:02:00.0","kind":"qemu-edu","nodes":[{"path":"/dev/edu1","major":240,"minor":1},{"path":"/dev/both","major":240,"minor":9}],"ready":true},
			{"id":"0000:04:00.0","kind":"qemu-edu","nodes":[{"path":"/dev/both","major":240,"minor":9}],"ready":true},
			{"id":"0000:05:00.0","kind":"other-thing","nodes":[{"path":"/dev/other","major":10,"minor":229}],"ready":true}],
			"choices":[{"pod":"u","container":"main","devices":["0000:02:00.0"]}]}`
		crio       = `{"annotations":{"io.kubernetes.pod.uid":"u","io.kubernetes.container.name":%q},"linux":{"devices":[%s]}}`
		containerd = `{"annotations":{"io.kubernetes.cri.sandbox-uid":"u","io.kubernetes.cri.container-name":%q},"linux":{"devices":[%s]}}`
		both       = `{"path":"/dev/both","type":"c","major":240,"minor":9}`
		notChosen  = "acceld: device 0000:01:00.0 is not the one that the scheduler chose for this container, which is 0000:02:00.0"
		spec       = `{"annotations":{"acceld.dev/devices":"x"},"process":{"env":["LD_PRELOAD=/evil.so"]},"linux":{"devices":[%s]}}`
		unready    = `{"path":"/dev/edu0","type":"c","major":240,"minor":0}`
		ready      = `{"path":"/dev/edu1","type":"c","major":240,"minor":1}`
		renamed    = `{"path":"/dev/accelerator","type":"c","major":240,"minor":0}`
		other      = `{"path":"/dev/fuse","type":"c","major":10,"minor":229}`
		block      = `{"path":"/dev/sda","type":"b","major":240,"minor":0}`
		notHot     = "acceld: device /dev/edu0 (0000:01:00.0) is not ready: DeviceUnhealthy: too hot\n"
	)
	for _, test := range []struct {
		name      string
		args      []string // after createRuntime
		published string   // empty: no file
		spec      string   // empty: no bundle
		stdin     string   // empty: the state of the bundle
		want      string   // part of standard error; empty: the container starts
	}{
		{name: "injected and ready", args: []string{"--device", "0000:02:00.0"}, published: published},
		{
			name: "injected and not ready", args: []string{"--device", "0000:01:00.0"}, published: published,
			want: notHot,
		},
		{
			name: "injected and gone", args: []string{"--device", "0000:03:00.0"}, published: published,
			want: "device 0000:03:00.0 is not ready: DeviceGone\n",
		},
		{
			name: "one of two not ready", args: []string{"--device", "0000:02:00.0", "--device", "0000:01:00.0"},
			published: published, want: notHot,
		},
		{
			name: "injected and unknown", args: []string{"--device", "0000:09:00.0"}, published: published,
			want: "device 0000:09:00.0 is not ready: Unknown: the agent has not published it\n",
		},
		{name: "injected and no file", args: []string{"--device", "0000:02:00.0"}, want: "no agent has published"},
		{
			name: "injected and a torn file", args: []string{"--device", "0000:02:00.0"}, published: published[:100],
			want: "cannot parse the readiness",
		},
		{
			name: "injected and a file of the future", args: []string{"--device", "0000:02:00.0"},
			published: `{"version":2}`, want: "version 2 is not 1",
		},
		{
			name: "injected and an unreadable state", args: []string{"--device", "0000:02:00.0"}, published: published,
			stdin: "{",
		},

		{name: "annotated and no device", published: published, spec: fmt.Sprintf(spec, "")},
		{name: "annotated, no device, no file", spec: fmt.Sprintf(spec, "")},
		{name: "annotated, no linux section", spec: `{}`},
		{name: "annotated and a foreign device", published: published, spec: fmt.Sprintf(spec, other)},
		{
			name: "annotated and a block device of the same numbers", published: published,
			spec: fmt.Sprintf(spec, block),
		},
		{name: "annotated and ready", published: published, spec: fmt.Sprintf(spec, ready+","+other)},
		{
			name: "annotated and not ready", published: published, spec: fmt.Sprintf(spec, ready+","+unready),
			want: notHot,
		},
		{
			name: "annotated and not ready by another name", published: published, spec: fmt.Sprintf(spec, renamed),
			want: notHot,
		},
		{
			name: "annotated, a device and no file", spec: fmt.Sprintf(spec, unready),
			want: "device /dev/edu0 is not ready: Unknown: no agent has published",
		},
		{
			name: "annotated and no bundle", published: published, stdin: `{"bundle":"/no/such"}`,
			want: "cannot read the container's specification",
		},
		{
			name: "annotated and a torn specification", published: published, spec: `{"linux":`,
			want: "cannot parse the container's specification",
		},
		{
			name: "annotated and a relative bundle", published: published, stdin: `{"bundle":"x"}`,
			want: "is not an absolute path",
		},
		{name: "annotated and no state", published: published, stdin: "\n", want: "cannot parse the container's state"},

		{
			name: "injected and chosen", args: []string{"--device", "0000:02:00.0"}, published: chosen,
			spec: fmt.Sprintf(containerd, "main", ready),
		},
		{
			name: "injected and another one chosen", args: []string{"--device", "0000:01:00.0"}, published: chosen,
			spec: fmt.Sprintf(containerd, "main", unready), want: notChosen,
		},
		{
			name: "injected into a container for which nobody chose", args: []string{"--device", "0000:01:00.0"},
			published: chosen, spec: fmt.Sprintf(containerd, "side", unready),
		},
		{
			name: "injected, of a kind of which nobody chose", args: []string{"--device", "0000:05:00.0"},
			published: chosen, spec: fmt.Sprintf(containerd, "main", other),
		},
		{
			name: "injected, without an identity", args: []string{"--device", "0000:01:00.0"}, published: chosen,
			spec: fmt.Sprintf(spec, unready),
		},
		{
			name: "injected, and nobody can tell who it is", args: []string{"--device", "0000:01:00.0"},
			published: chosen, want: "cannot read the container's specification",
		},
		{name: "annotated and chosen", published: chosen, spec: fmt.Sprintf(crio, "main", ready+","+other)},
		{
			name: "annotated and another one chosen", published: chosen, spec: fmt.Sprintf(crio, "main", unready),
			want: notChosen,
		},
		{
			name: "annotated, a node that the chosen one has too", published: chosen,
			spec: fmt.Sprintf(crio, "main", ready+","+both),
		},
		{name: "annotated, nobody chose", published: chosen, spec: fmt.Sprintf(crio, "side", unready)},

		{name: "unknown argument", args: []string{"--env", "x"}, want: `unknown argument "--env"`},
		{name: "argument without value", args: []string{"--device"}, want: "has no value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			state := filepath.Join(dir, "devices.json")
			write(t, state, test.published)
			write(t, filepath.Join(dir, "config.json"), test.spec)
			if test.stdin == "" {
				test.stdin = fmt.Sprintf(`{"ociVersion":"1.2.0","id":"c","status":"creating","pid":1,"bundle":%q}`, dir)
			}
			cmd := exec.Command(program, append([]string{"createRuntime", "--state", state}, test.args...)...)
			cmd.Stdin = strings.NewReader(test.stdin)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if stdout.Len() > 0 {
				t.Errorf("standard output: %s", stdout.String())
			}
			if test.want == "" {
				if err != nil || stderr.Len() > 0 {
					t.Errorf("%v, %s; want the container to start", err, stderr.String())
				}
				return
			}
			if code := cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit status %d, want 1", code)
			}
			line := stderr.String()
			if !strings.HasPrefix(line, "acceld: ") || !strings.Contains(line, test.want) ||
				strings.Count(line, "\n") != 1 {
				t.Errorf("standard error %q; want one line with %q", line, test.want)
			}
		})
	}
}

// The hook reads the agent's file, whatever the caller's environment says.
func TestEnvironmentIsIgnored(t *testing.T) {
	if _, err := os.Stat(gate.Path); err == nil {
		t.Skipf("an agent works on this machine: %s is there", gate.Path)
	}
	cmd := exec.Command(build(t), "createRuntime", "--device", "0000:01:00.0")
	cmd.Env = []string{"ACCELD_STATE=/dev/null", "STATE=/dev/null", "HOME=/dev/null"}
	cmd.Stdin = strings.NewReader("{}")
	cmd.WaitDelay = time.Minute
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), gate.Path) {
		t.Errorf("%v, %s; want a refusal that names %s", err, out, gate.Path)
	}
}

func TestOnlyCreateRuntime(t *testing.T) {
	for _, args := range [][]string{nil, {"prestart"}, {"--device", "x"}} {
		if _, err := gate.Parse(args); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if text == "" {
		return
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
