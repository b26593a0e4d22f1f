package detect

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// said fakes the attributes of a device: a text or an error for each file. Several answers of one file are those of
// the files that a pattern matches.
type said map[string][]any

func (s said) All(file string) []host.Answer {
	var out []host.Answer
	for _, v := range s[file] {
		switch v := v.(type) {
		case string:
			out = append(out, host.Answer{Name: file, Text: v})
		case error:
			out = append(out, host.Answer{Name: file, Err: v})
		}
	}
	if out == nil {
		return []host.Answer{{Name: file, Err: fs.ErrNotExist}}
	}
	return out
}

func (s said) Read(file string) (string, error) {
	first := s.All(file)[0]
	return first.Text, first.Err
}

func TestMeasure(t *testing.T) {
	one := func(m accel.MetricSource) accel.MetricSource { m.Name, m.File = "x", "f"; return m }
	for _, c := range []struct {
		name string
		m    accel.MetricSource
		says []any
		want float64
		err  string
	}{
		{"digits", one(accel.MetricSource{}), []any{"37"}, 37, ""},
		{"hexadecimal ones", one(accel.MetricSource{}), []any{"0x1f"}, 31, ""},
		{"scaled", one(accel.MetricSource{Scale: 0.001}), []any{"47500"}, 47.5, ""},
		{"scaled without a rest", one(accel.MetricSource{Scale: 0.000001}), []any{"81234567890"}, 81234.56789, ""},
		{"scaled up", one(accel.MetricSource{Scale: 1e6}), []any{"1650"}, 1650e6, ""},
		{"below zero", one(accel.MetricSource{Scale: 0.001}), []any{"-40000"}, -40, ""},
		{"nothing", one(accel.MetricSource{}), []any{""}, 0, `"" is not a number`},
		{"a word", one(accel.MetricSource{}), []any{"N/A"}, 0, `"N/A" is not a number`},
		{"too much", one(accel.MetricSource{}), []any{"1e999"}, 0, "not a number"},
		{"a number that is none", one(accel.MetricSource{}), []any{"NaN"}, 0, "not a number"},
		{"not there", one(accel.MetricSource{}), nil, 0, "file does not exist"},
		{"the first of several", one(accel.MetricSource{}), []any{"1", "2"}, 1, ""},
		{
			"one of the words", one(accel.MetricSource{Values: map[string]float64{"D0": 0, "D3hot": 3}}),
			[]any{"D3hot"},
			3, "",
		},
		{
			"none of the words", one(accel.MetricSource{Values: map[string]float64{"D0": 0}}),
			[]any{"unknown"},
			0,
			`"unknown" is none of the words`,
		},
		{
			"no word at all", one(accel.MetricSource{Values: map[string]float64{"D0": 0}}),
			[]any{"5"},
			0,
			`"5" is none of the words`,
		},
		{
			"what is so now, of a list", one(accel.MetricSource{Match: `(?P<value>[0-9]+)Mhz \*`, Scale: 1e6}),
			[]any{"0: 500Mhz\n1: 2476Mhz *\n2: 2526Mhz"},
			2476e6, "",
		},
		{
			"nothing is so now", one(accel.MetricSource{Match: `(?P<value>[0-9]+)Mhz \*`}),
			[]any{"0: 500Mhz\n1: 2476Mhz"},
			0, `"0: 500Mhz 1: 2476Mhz" has no (?P<value>`,
		},
		{"the second word", one(accel.MetricSource{Match: `^\S+ (?P<value>\S+)`}), []any{"12 34 56"}, 34, ""},
		{"all that matches", one(accel.MetricSource{Match: `^[1-9][0-9]*$`}), []any{"120"}, 120, ""},
		{
			"a word where it was looked for",
			one(accel.MetricSource{Match: `state (?P<value>\w+)`, Values: map[string]float64{"on": 1}}),
			[]any{"the state on"},
			1, "",
		},
		{
			"no number where it was looked for", one(accel.MetricSource{Match: `state (?P<value>\w+)`}),
			[]any{"the state on"},
			0, `"on" is not a number`,
		},
		{
			"the sum of lines", one(accel.MetricSource{Match: `ue: (?P<value>[0-9]+)`, Combine: accel.CombineSum}),
			[]any{"ue: 1\nce: 9\nue: 2"},
			3, "",
		},
		{
			"the sum of files", one(accel.MetricSource{Combine: accel.CombineSum, Scale: 2}),
			[]any{"1", "2", "4"},
			14,
			"",
		},
		{"the highest", one(accel.MetricSource{Combine: accel.CombineMax}), []any{"1", "-2", "0.5"}, 1, ""},
		{"the lowest", one(accel.MetricSource{Combine: accel.CombineMin}), []any{"1", "-2", "0.5"}, -2, ""},
		{
			"a sum of which a part is not there", one(accel.MetricSource{Combine: accel.CombineSum}),
			[]any{"1", syscall.EOPNOTSUPP, "4"},
			5, "",
		},
		{
			"a sum of which a part does not answer", one(accel.MetricSource{Combine: accel.CombineSum}),
			[]any{"1", syscall.EIO, "4"},
			0, "input/output error",
		},
		{
			"a sum of which a part is nonsense", one(accel.MetricSource{Combine: accel.CombineSum}),
			[]any{"1", "x", "4"},
			0, `"x" is not a number`,
		},
		{
			"a sum of nothing", one(accel.MetricSource{Combine: accel.CombineSum}),
			[]any{syscall.ENODATA},
			0,
			"no data available",
		},
		{
			"how many", one(accel.MetricSource{Match: ` : [RPF]$`, Combine: accel.CombineCount}),
			[]any{"0x1 : 0x1000 : R\n0x2 : 0x1000 : P\nnonsense"},
			2, "",
		},
		{
			"how many, of none", one(accel.MetricSource{Match: ` : [RPF]$`, Combine: accel.CombineCount}),
			[]any{""},
			0,
			"",
		},
		{
			"how many, of what is not there", one(accel.MetricSource{Match: ` : [RPF]$`, Combine: accel.CombineCount}),
			nil, 0, "file does not exist",
		},
	} {
		got, err := measure(said{"f": c.says}, c.m)
		if c.err == "" && (err != nil || got != c.want) || c.err != "" &&
			(err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, %v; want %v, %q", c.name, got, err, c.want, c.err)
		}
	}
}

// TestUnreadable has a row for each way in which drivers report a sensor that cannot be read now. An optional one is
// left out, any other is named in the error, and the rest is there in any case.
func TestUnreadable(t *testing.T) {
	for _, errno := range []syscall.Errno{
		syscall.EIO, syscall.EAGAIN, syscall.EINVAL, syscall.EBUSY, syscall.EPERM,
		syscall.ENODEV, syscall.ENODATA, syscall.EOPNOTSUPP, syscall.ETIMEDOUT, syscall.EACCES,
	} {
		from := said{"a": {errno}, "b": {"1"}}
		metrics := []accel.MetricSource{{Name: "a", File: "a", Optional: true}, {Name: "b", File: "b"}}
		got, err := collect(from, metrics, accel.Accelerator{ID: card})
		if diff := cmp.Diff(map[string]float64{"b": 1}, got); diff != "" || err != nil {
			t.Errorf("%v, optional: %v %s", errno, err, diff)
		}
		metrics[0].Optional = false
		got, err = collect(from, metrics, accel.Accelerator{ID: card})
		if diff := cmp.Diff(map[string]float64{"b": 1}, got); diff != "" {
			t.Errorf("%v: %s", errno, diff)
		}
		if p := accel.AsProblem(err); p.Reason != accel.CollectFailed ||
			!strings.Contains(p.Message, "a: "+errno.Error()) || strings.Contains(p.Message, "b: ") {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

// TestAsleep: for a suspended device, only what the bus knows is read.
func TestAsleep(t *testing.T) {
	def := &accel.Definition{Metrics: []accel.MetricSource{
		{Name: "load", File: "load"},
		{Name: "memory", File: "memory", Fixed: true, Optional: true},
	}}
	a := accel.Accelerator{ID: card, Metrics: map[string]float64{"load": 70, "memory": 80}}
	from := said{
		"load": {"50"}, "hwmon/hwmon*/temp1_input": {"40000"}, "power_state": {"D3hot"},
		"aer_dev_fatal#TOTAL_ERR_FATAL": {"7"},
		"power/runtime_status":          {"suspended"},
	}
	got, err := collect(from, def.AllMetrics(), a)
	if diff := cmp.Diff(map[string]float64{
		"memory": 80, "accelerator_pci_power_state": 3,
		"accelerator_pcie_fatal_errors_total": 7,
	}, got); diff != "" || err != nil {
		t.Errorf("asleep: %v %s", err, diff)
	}
	for _, status := range []any{"active", "resuming", "unsupported", syscall.EIO} {
		from["power/runtime_status"] = []any{status}
		got, err = collect(from, def.AllMetrics(), a)
		if len(got) != 4 || got["load"] != 50 || err != nil {
			t.Errorf("%v: %v, %v", status, got, err)
		}
	}
}

func TestJudge(t *testing.T) {
	simple := []accel.HealthSource{{File: "a", Healthy: "ok"}}
	words := []accel.HealthSource{{
		File: "a", Healthy: "ok", Match: `state: (?P<value>\w+)`, Otherwise: accel.Verdict{
			Title: "odd",
			State: accel.Degraded,
		},
		Verdicts: map[string]accel.Verdict{
			"busy": {Title: "at work"}, "tired": {State: accel.Degraded},
			"dead": {Title: "it is dead", State: accel.Unhealthy, Action: accel.ActionReboot},
		},
	}}
	absent := []accel.HealthSource{{File: "a", Healthy: "", Optional: true, Otherwise: accel.Verdict{
		Title: "in need",
		State: accel.Unhealthy, Action: accel.ActionService,
	}}}
	two := []accel.HealthSource{
		{File: "a", Healthy: "ok", Otherwise: accel.Verdict{State: accel.Degraded}},
		{File: "b", Healthy: "ok"},
	}
	for _, c := range []struct {
		name    string
		sources []accel.HealthSource
		says    said
		want    accel.Health
		unknown bool
	}{
		{"well", simple, said{"a": {"ok"}}, accel.Health{State: accel.Healthy}, false},
		{"not well", simple, said{"a": {"smoke"}}, accel.Health{
			State: accel.Unhealthy, Reason: accel.DeviceUnhealthy,
			Message: "smoke",
		}, false},
		{"not there", simple, said{}, accel.Health{}, true},
		{"not answering", simple, said{"a": {syscall.EIO}}, accel.Health{}, true},
		{"well, in words", words, said{"a": {"state: ok"}}, accel.Health{State: accel.Healthy}, false},
		{"well, in a whole", words, said{"a": {"ok"}}, accel.Health{State: accel.Healthy}, false},
		{"well, in another word", words, said{"a": {"state: busy"}}, accel.Health{State: accel.Healthy}, false},
		{"a word with a state", words, said{"a": {"state: tired"}}, accel.Health{
			State:  accel.Degraded,
			Reason: accel.DeviceUnhealthy, Message: "tired",
		}, false},
		{"a word with all", words, said{"a": {"the state: dead"}}, accel.Health{
			State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Action: accel.ActionReboot, Message: "it is dead",
			Evidence: "a: dead",
		}, false},
		{"any other word", words, said{"a": {"state: x"}}, accel.Health{
			State:  accel.Degraded,
			Reason: accel.DeviceUnhealthy, Message: "odd", Evidence: "a: x",
		}, false},
		{"there only in need, and not there", absent, said{}, accel.Health{State: accel.Healthy}, false},
		{"there only in need, and empty", absent, said{"a": {""}}, accel.Health{State: accel.Healthy}, false},
		{"there only in need, and there", absent, said{"a": {"mode: 1\ncode: 7"}}, accel.Health{
			State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Action: accel.ActionService, Message: "in need",
			Evidence: "a: mode: 1 code: 7",
		}, false},
		{"there only in need, and not answering", absent, said{"a": {syscall.EAGAIN}}, accel.Health{}, true},
		{"the worse of two", two, said{"a": {"x"}, "b": {"y"}}, accel.Health{
			State:  accel.Unhealthy,
			Reason: accel.DeviceUnhealthy, Message: "y",
		}, false},
		{
			"the better of two does not answer", two,
			said{"a": {syscall.EIO}, "b": {"y"}},
			accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "y"},
			false,
		},
		{"the worse of two does not answer", two, said{"a": {"x"}, "b": {syscall.EIO}}, accel.Health{}, true},
	} {
		got, err := judge(c.says, c.sources, card)
		if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.unknown {
			t.Errorf("%s: %v %s", c.name, err, diff)
		}
		if err != nil && accel.AsProblem(err).Reason != accel.CollectFailed {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
