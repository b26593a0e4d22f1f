package accel

import (
	"math"
	"strings"
	"testing"
)

// TestReadings: what is known of a device's readings, in words; what is not known is empty, never zero.
func TestReadings(t *testing.T) {
	const gib = 1 << 30
	for name, tt := range map[string]struct {
		metrics map[string]float64
		want    string // utilization, memory, power, temperature
	}{
		"nothing": {nil, "|||"},
		"everything": {map[string]float64{
			MetricUtilization: 0.125, MetricMemoryUsed: 31.4 * gib, MetricMemoryTotal: 80 * gib, MetricPower: 239.6,
			MetricPowerLimit: 400, MetricTemperature: 41.5,
		}, "12 %|31/80 GiB|240/400 W|42 °C"},
		"zero is known":          {map[string]float64{MetricUtilization: 0, MetricPower: 0, MetricTemperature: 0}, "0 %||0 W|0 °C"},
		"the inherited scale":    {map[string]float64{"accelerator_gpu_utilization": 50}, "50 %|||"},
		"used alone":             {map[string]float64{MetricMemoryUsed: 7.5 * gib}, "|7.5 GiB||"},
		"the size alone":         {map[string]float64{MetricMemoryTotal: 16 * gib}, "|-/16 GiB||"},
		"a small device":         {map[string]float64{MetricMemoryUsed: 0, MetricMemoryTotal: 512 << 20}, "|0/512 MiB||"},
		"the limit alone":        {map[string]float64{MetricPowerLimit: 75}, "||-/75 W|"},
		"a reading that is none": {map[string]float64{MetricPower: math.NaN(), MetricTemperature: math.Inf(1)}, "|||"},
	} {
		r := Accelerator{Health: Health{State: Healthy}, Metrics: tt.metrics}.Readings()
		if got := strings.Join([]string{
			r.UtilizationText(), r.MemoryText(), r.PowerText(), r.TemperatureText(),
		}, "|"); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	gone := Accelerator{Health: Health{State: Gone}, Metrics: map[string]float64{MetricPower: 1}}
	if gone.Readings() != (Readings{}) {
		t.Error("a device that is gone has readings")
	}
	r := Readings{MemoryUsed: Known(30.0), MemoryTotal: Known(40.0), Power: Known(5.0)}
	if !r.MemoryShare().Is(0.75) || r.PowerShare().Known {
		t.Errorf("shares %v %v", r.MemoryShare(), r.PowerShare())
	}
}

// TestTally: each device counts once, a divided one as its partitions.
func TestTally(t *testing.T) {
	well := Health{State: Healthy}
	accs := []Accelerator{
		{ID: "used", Health: well, Bound: "npu"},
		{ID: "free", Health: well, Bound: "npu"},
		{ID: "worn", Health: Health{State: Degraded}, Bound: "npu"},
		{ID: "held back", Health: well, Bound: "npu", Withheld: &Withheld{By: ByReset}},
		{ID: "used and drained", Health: well, Bound: "npu", Withheld: &Withheld{By: ByDrain}},
		{ID: "sick", Health: Health{State: Unhealthy}, Bound: "npu"},
		{ID: "gone", Health: Health{State: Gone}},
		{ID: "vm", Health: well, Bound: "vfio-pci", Switched: &Switched{}, Withheld: &Withheld{By: BySwitch}},
		{ID: "divided", Health: well, Bound: "npu", Partitions: []Accelerator{
			{ID: "p0", Parent: "divided", Profile: "half", Health: well},
			{ID: "p1", Parent: "divided", Profile: "half", Health: well},
			{ID: "former", Parent: "divided", Profile: "half", Health: Health{State: Gone}},
		}},
	}
	held := map[string]bool{"used": true, "used and drained": true, "p1": true}
	got := Tally{}.Add(accs, func(id string) bool { return held[id] })
	if want := (Tally{Total: 10, Used: 4, Free: 3, Withheld: 1, Sick: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if text := got.String(); text != "4 used, 3 free, 1 held back, 2 sick" {
		t.Error(text)
	}
	got = Tally{}.Add(accs, nil)
	if text := got.String(); text != "6 offered, 2 held back, 2 sick" {
		t.Errorf("while the holders are unknown: %s, %+v", text, got)
	}
	var order []string
	for _, a := range SickFirst(accs) {
		order = append(order, a.ID)
	}
	if got := strings.Join(order[:4], ","); got != "sick,gone,worn,held back" {
		t.Errorf("first come %s", got)
	}
	if accs[0].ID != "used" {
		t.Error("the machine's own order has changed")
	}
}

// TestCandidates: what looks like an accelerator and has no definition, but no console, no virtual function.
func TestCandidates(t *testing.T) {
	kinds := map[string]*Definition{"npu": {Kind: "npu", Match: []Match{{Vendor: "1234"}}}}
	var got []string
	for _, d := range Candidates(kinds, []PCIDevice{
		{Address: "known", Vendor: "1234", Class: "120000"},
		{Address: "processing", Vendor: "10ee", Class: "120000"},
		{Address: "3d", Vendor: "abcd", Class: "030200"},
		{Address: "display", Vendor: "abcd", Class: "038000"},
		{Address: "coprocessor", Vendor: "abcd", Class: "0b4000"},
		{Address: "console", Vendor: "1a03", Class: "030000"},
		{Address: "network", Vendor: "8086", Class: "020000"},
		{Address: "virtual", Vendor: "10ee", Class: "120000", SRIOV: SRIOV{PhysFn: "processing"}},
	}) {
		got = append(got, d.Address)
	}
	if text := strings.Join(got, ","); text != "processing,3d,display,coprocessor" {
		t.Errorf("candidates %s", text)
	}
}
