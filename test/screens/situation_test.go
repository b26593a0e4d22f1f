package screens

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
)

// situation is a state of a host, and what an operator has to see of it.
type situation struct {
	name string
	// change makes it of a host with eight healthy devices.
	change func(have *accel.Have, now time.Time)
	// words must be on the first screen of a phone, shown in `acceld status`.
	words, shown []string
}

func situations() []situation {
	bare := func(have *accel.Have) { // without a driver, before anything else was done
		for i := range have.Accelerators {
			a := &have.Accelerators[i]
			a.Bound, a.Nodes, a.Serial, a.Metrics, a.Handover = "", nil, "", nil, nil
		}
		have.Driver, have.Runtime = accel.DriverHave{}, accel.RuntimeHave{}
		have.Plugin, have.Monitoring = accel.PluginHave{}, accel.Monitoring{}
	}
	return []situation{
		{
			"eight-healthy", func(*accel.Have, time.Time) {},
			[]string{"All 8 accelerators are healthy"},
			[]string{"8 of 8 devices usable"},
		},
		{
			"one-sick", func(have *accel.Have, now time.Time) {
				have.Accelerators[5] = sample(now).Have["example-npu"].Accelerators[5]
				have.Plugin.Allocatable = accel.Known(7)
			},
			[]string{"Needs attention", "0000:40:00.0", "fallen off the bus", "acceld reset 0000:40:00.0"},
			[]string{"7 of 8 devices usable", "fallen off the bus"},
		},
		{
			"pull", func(have *accel.Have, now time.Time) {
				bare(have)
				have.Work = []accel.Progress{{
					Kind: "example-npu", Stage: accel.StagePull, What: "registry.example.com/drivers/npu:550.90.07",
					Done: 45e6, Total: 100e6, Since: now.Add(-time.Minute), Moved: now.Add(-time.Second),
				}}
			},
			[]string{"On the way", "pulling", "registry.example.com/drivers/npu:550.90.07"},
			[]string{"pulling registry.example.com/drivers/npu:550.90.07, 40 % since"},
		},
		{
			"build-failed", func(have *accel.Have, now time.Time) {
				bare(have)
				have.Failure = &accel.Failure{
					Step: accel.StepDriver, Since: now.Add(-10 * time.Minute), Attempts: 3,
					RetryAt: now.Add(4 * time.Minute),
					Problem: accel.Problem{
						Reason:  accel.BuildFailed,
						Message: "npu_main.c:181: implicit declaration of function 'drm_gem_prime_export'",
						Tried:   []string{"store: no driver 550.90.07 for kernel 6.1.0-47-amd64"},
					},
				}
			},
			[]string{"Needs attention", "BuildFailed", "drm_gem_prime_export"},
			[]string{"BuildFailed", "drm_gem_prime_export", "tried again"},
		},
		{
			"upgrade", func(have *accel.Have, now time.Time) {
				have.Driver.Upgrade = &accel.Upgrade{
					From: accel.DriverRef{Version: "535.261.03"}, To: accel.DriverRef{Version: "550.90.07"}, Wish: "550.90.07",
					Why:   `module "npu" is loaded in version "535.261.03", wanted is "550.90.07"`,
					Phase: accel.UpgradeDraining, Since: now.Add(-2 * time.Minute),
					Holders: []accel.Holder{{PID: 4242, Comm: "python3"}},
				}
			},
			[]string{"Another driver is wanted: example-npu", "550.90.07", "In use by python3"},
			[]string{"550.90.07", "python3"},
		},
		{
			"unchecked", func(have *accel.Have, _ time.Time) {
				have.Driver.Unchecked, have.Driver.Proven, have.Driver.Proof = true, time.Time{}, ""
			},
			[]string{"All 8 accelerators are healthy; unchecked: example-npu"},
			[]string{"unchecked: its definition has no check"},
		},
	}
}

// of makes the host of a situation, with the status that an agent gives it.
func (s situation) of(now time.Time) accel.Machine {
	m := sample(now)
	have := m.Have["example-npu"]
	for i := range have.Accelerators {
		a := &have.Accelerators[i]
		a.Health = accel.Health{State: accel.Healthy, Since: a.Health.Since}
		a.Recorded, a.Repair, a.Settings, a.Faults = 0, nil, nil, nil
	}
	have.Driver.Next = nil
	have.Plugin.Allocatable = accel.Known(8)
	def := m.Want.Kinds["example-npu"]
	m.Want.Kinds = map[string]*accel.Definition{"example-npu": def}
	s.change(&have, now)
	have.Accelerators = accel.Withhold(have.Accelerators, have, func(string) bool { return have.Driver.PastCheck() })
	m.Have = map[string]accel.Have{"example-npu": have}
	status := loop.Next(m, "example-npu")
	status.Since = now.Add(-time.Hour)
	if status.State == accel.Ready {
		status.Took = m.Status["example-npu"].Took
	}
	m.Status = map[string]accel.Status{"example-npu": status}
	return m
}

// TestSituations looks at the page, `acceld status` and `acceld top` of a host in each situation that people meet. On a
// phone, the first screen has to name it.
func TestSituations(t *testing.T) {
	b, out := open(t)
	program := buildProgram(t)
	for _, s := range situations() {
		t.Run(s.name, func(t *testing.T) {
			now := time.Now()
			h := host{m: s.of(now)}
			config := h.listen(t)
			url := h.serve(t).URL
			t.Cleanup(func() { // the page would complain that its host is gone
				if err := b.Call("Page.navigate", map[string]any{"url": "about:blank"}, nil); err != nil {
					t.Error(err)
				}
			})
			look(t, b, out, "host-"+s.name, url)
			if err := b.Open(url, looks()[2]); err != nil {
				t.Fatal(err)
			}
			var first string
			if err := b.Eval(firstScreen, &first); err != nil {
				t.Fatal(err)
			}
			lacks(t, "the first screen of a phone", first, s.words)
			pages, err := record(t.Context(), program, "--config", config, "status")
			if err != nil {
				t.Fatal(err)
			}
			text := plain(pages[len(pages)-1])
			lacks(t, "acceld status", text, s.shown)
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
			defer stop()
			top, err := record(ctx, program, "--config", config, "top")
			if err != nil {
				t.Fatal(err)
			}
			lacks(t, "acceld top", plain(top[0]), []string{"0000:18:00.0", "0000:50:00.0"})
			text += "\n" + plain(top[0])
			if err := os.WriteFile(filepath.Join(out, "host-"+s.name+".txt"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// firstScreen is the text that a reader sees before scrolling.
const firstScreen = `(() => {
  const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; n = walk.nextNode();) {
    const box = n.parentElement.getBoundingClientRect();
    if (n.textContent.trim() && box.width && box.top < innerHeight && box.bottom > 0) out.push(n.textContent.trim());
  }
  return out.join(" ");
})()`

// lacks fails for words that a text does not have, wherever its lines break.
func lacks(t *testing.T, what, text string, words []string) {
	t.Helper()
	flowing := strings.Join(strings.Fields(text), " ")
	for _, w := range words {
		if !strings.Contains(flowing, w) {
			t.Errorf("%s lacks %q:\n%s", what, w, text)
		}
	}
}

// buildProgram builds acceld.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "acceld")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags=grpcnotrace", "-o", program, "../../cmd/acceld")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return program
}
