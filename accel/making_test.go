package accel

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// FuzzReadDivided: whatever a journal says, what is read of it is bounded, names a file of its device only, and is
// written again as it was.
func FuzzReadDivided(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"qemu-edu","profile":"half","file":"partitions","value":"2","before":"1","claim":"u-1","name":"team/c"}`,
		`{"kind":"qemu-edu","profile":"half","file":"../../x","value":"2","before":"1","claim":"u-1"}`,
		`{"kind":"qemu-edu","profile":"half","value":"half=2","claim":"u-1"}`,
		`{"kind":"qemu-edu","profile":"ha/lf","file":"a//b","value":"2\n","before":"1","claim":"../u"}`, `{`, ``, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ReadDivided(text)
		if err != nil {
			return
		}
		if strings.HasPrefix(d.File, "/") || strings.Contains("/"+d.File+"/", "/../") || strings.ContainsAny(d.File, "*?[\n") ||
			strings.ContainsAny(d.Value+d.Before, "\n\x00") || d.Value == "" || d.Claim == "" || d.Profile == "" {
			t.Fatalf("%+v", d)
		}
		again, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) <= MaxDivided {
			if o, err := ReadDivided(again); err != nil || o.Value != d.Value || o.Claim != d.Claim {
				t.Fatalf("%v %+v", err, o)
			}
		}
	})
}

// making is a definition of profiles with as many parts each.
func making(counts ...int) *Partitions {
	d := &Partitions{Make: &Making{File: "mode", Whole: "0"}}
	for i, n := range counts {
		p := Profile{Name: fmt.Sprintf("p%d", i), Make: strconv.Itoa(n)}
		for part := range n {
			p.Possible = append(p.Possible, fmt.Sprint("x", part))
		}
		d.Profiles = append(d.Profiles, p)
	}
	return d
}

// fits reports whether the counters let somebody have all of these at the same time.
func fits(counters map[string]string, takers ...map[string]string) bool {
	sum := map[string]int64{}
	for _, t := range takers {
		for name, amount := range t {
			n, _ := strconv.ParseInt(amount, 10, 64)
			sum[name] += n
		}
	}
	for name, n := range sum {
		if all, _ := strconv.ParseInt(counters[name], 10, 64); n > all {
			return false
		}
	}
	return true
}

// TestCountersKeepPartsApart: whatever the profiles are, the scheduler's arithmetic allows all parts of one profile at
// the same time, and neither two that cannot be there together nor a part of a device that somebody has whole.
func TestCountersKeepPartsApart(t *testing.T) {
	for _, counts := range [][]int{
		{1}, {2}, {24}, {64}, {2, 4}, {4, 2}, {2, 2}, {1, 1}, {2, 4, 8}, {3, 5, 7}, {1, 2, 24},
	} {
		d := making(counts...)
		if text := d.MakingProblems(); len(text) > 0 {
			t.Fatal(counts, text)
		}
		all := d.AllCounters()
		whole := all // whoever has the device takes everything
		for i, p := range d.Profiles {
			var together []map[string]string
			for _, name := range p.Possible {
				part := d.Taken(p.Name, name)
				together = append(together, part)
				if len(part) == 0 || fits(all, whole, part) || fits(all, part, part) && len(p.Possible) == 1 {
					t.Errorf("%v: %s of %s: %v of %v", counts, name, p.Name, part, all)
				}
				for j, o := range d.Profiles {
					for _, other := range o.Possible {
						if i != j && fits(all, part, d.Taken(o.Name, other)) {
							t.Errorf("%v: %s %s beside %s %s", counts, p.Name, name, o.Name, other)
						}
					}
				}
			}
			if !fits(all, together...) {
				t.Errorf("%v: not all of %s: %v of %v", counts, p.Name, together, all)
			}
		}
		if d.Taken("p0", "unknown") != nil || d.Taken("unknown", "x0") != nil {
			t.Error("something takes what is not known")
		}
	}
	if d := making(2); d.Taken("p0", "x0") == nil || len(d.AllCounters()) != 1 {
		t.Error(d.AllCounters())
	}
	old := &Partitions{Counters: map[string]string{"a": "2"}, Profiles: []Profile{{Name: "p", Uses: map[string]string{"a": "1"}}}}
	if old.Taken("p", "any")["a"] != "1" || old.AllCounters()["a"] != "2" {
		t.Error("without make, the definition says what is taken")
	}
}

func TestMakingProblems(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Partitions)
		want   string
	}{
		"right":        {func(*Partitions) {}, ""},
		"none":         {func(d *Partitions) { d.Make = nil }, ""},
		"both":         {func(d *Partitions) { d.Make.Program = true }, "make: "},
		"neither":      {func(d *Partitions) { d.Make.File = "" }, "make: "},
		"elsewhere":    {func(d *Partitions) { d.Make.File = "../x" }, "make.file: "},
		"not told":     {func(d *Partitions) { d.Make = &Making{Program: true} }, "make.program: "},
		"no whole":     {func(d *Partitions) { d.Make.Whole = "" }, "make.whole: "},
		"two lines":    {func(d *Partitions) { d.Profiles[0].Make = "1\n2" }, "profiles[0].make: "},
		"nothing":      {func(d *Partitions) { d.Profiles[0].Make = "0" }, "profiles[0].make: "},
		"not possible": {func(d *Partitions) { d.Profiles[0].Possible = nil }, "profiles[0].possible: "},
		"no parts":     {func(d *Partitions) { d.Profiles = nil }, "make: no profile"},
		"too many":     {func(d *Partitions) { *d = *making(65) }, "profiles[0].possible: "},
		"counters":     {func(d *Partitions) { *d = *making(32, 33) }, "make: 33 counters"},
		"a layout":     {func(d *Partitions) { d.Layout = []Layout{{}} }, "make: and layout"},
		"a program": {func(d *Partitions) {
			d.Told, d.Make, d.Profiles[0].Make, d.Profiles[1].Make = true, &Making{Program: true}, "", ""
		}, ""},
		"a program with text": {func(d *Partitions) { d.Told, d.Make = true, &Making{Program: true} }, "profiles[0].make: "},
	} {
		d := making(2, 4)
		c.change(d)
		got := strings.Join(d.MakingProblems(), "; ")
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	d := making(2)
	if d.MadeBy(d.Profiles[0]) != "2" {
		t.Error(d.MadeBy(d.Profiles[0]))
	}
	d.Make = &Making{Program: true}
	if d.MadeBy(d.Profiles[0]) != "p0=2" {
		t.Error(d.MadeBy(d.Profiles[0]))
	}
	def := &Definition{Kind: "a-b", Partitions: making(2)}
	if _, misfit := (KindConfig{Functions: &Functions{Count: 2}}).Apply(def); !strings.HasPrefix(misfit, "functions: ") {
		t.Error(misfit)
	}
}
