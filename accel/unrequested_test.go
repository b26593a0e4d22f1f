package accel

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUnrequestedProblems(t *testing.T) {
	for text, u := range map[string]Unrequested{
		"": {Report: ReportContainers, Beside: []string{"a.service", "namespace/x"}},
		`report: "off" is not one of all, containers, none`: {Report: "off"},
		`beside: "a" is neither a service nor namespace/<name>; beside: "namespace/A" is neither a service nor namespace/<name>`: {
			Beside: []string{"a", "namespace/A"},
		},
		"beside: there are 17, at most 16": {Beside: strings.Fields(strings.Repeat("a.service ", 17))},
	} {
		if got := strings.Join(u.Problems(), "; "); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	k := KindConfig{Unrequested: &Unrequested{Report: "x"}}
	if got := k.Problems(); len(got) != 1 || !strings.HasPrefix(got[0], "unrequested.report: ") {
		t.Errorf("%q", got)
	}
	def := &Definition{Unrequested: &Unrequested{Beside: []string{"a.service"}}}
	applied, _ := KindConfig{}.Apply(def)
	if applied.Unrequested != def.Unrequested || applied.ReportsUse() != ReportAll {
		t.Errorf("without an override %+v", applied.Unrequested)
	}
	applied, _ = KindConfig{Unrequested: &Unrequested{Report: ReportNone}}.Apply(def)
	if applied.ReportsUse() != ReportNone {
		t.Errorf("with an override %+v", applied.Unrequested)
	}
}

func unrequestedUser(pid int, since time.Time) UnrequestedUser {
	return UnrequestedUser{Holder: Holder{PID: pid, Comm: "x"}, Processes: 1, Since: since}
}

func TestUnrequestedUser(t *testing.T) {
	for text, change := range map[string]func(*UnrequestedUser){
		"process 7 x (of the host)":                                    func(*UnrequestedUser) {},
		"process 7 x (of the host, in a.service)":                      func(u *UnrequestedUser) { u.Unit = "a.service" },
		"process 7 x and 2 more (container 0f0f, which is in no pod)":  func(u *UnrequestedUser) { u.Container, u.Processes = "0f0f", 3 },
		"process 7 x (pod u, to which no device of the kind is given)": func(u *UnrequestedUser) { u.PodUID = "u" },
		"process 7 x (pod n/p, to which 0000:01:00.0 and b is given)": func(u *UnrequestedUser) {
			u.PodUID, u.Namespace, u.Pod, u.Given = "u", "n", "p", []string{"0000:01:00.0", "b"}
		},
		"process 7 x (pod n/p, to which no device of the kind is given)":          func(u *UnrequestedUser) { u.PodUID, u.Namespace, u.Pod = "u", "n", "p" },
		"process 7 x and 1 more (pod u, to which no device of the kind is given)": func(u *UnrequestedUser) { u.PodUID, u.Processes = "u", 2 },
	} {
		u := unrequestedUser(7, time.Time{})
		change(&u)
		if got := u.String(); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	h := UnrequestedHave{Count: 3, Users: []UnrequestedUser{unrequestedUser(7, time.Time{})}}
	if got := strings.Join(h.Lines(), "; "); got != "process 7 x (of the host); and 2 more" {
		t.Error(got)
	}
	h.Unknown = "why"
	if got := strings.Join(h.Lines(), "; "); got != "not known: why" {
		t.Error(got)
	}
}

// TestUnrequestedPublic: over TCP, who uses a device is shown as far as its other holders are.
func TestUnrequestedPublic(t *testing.T) {
	never := time.Time{}
	host, box, pod := unrequestedUser(1, never), unrequestedUser(2, never), unrequestedUser(3, never)
	host.Unit, box.Container, pod.PodUID, pod.Pod = "secret.service", "0f0f", "u", "p"
	have := &UnrequestedHave{Count: 3, Users: []UnrequestedUser{host, box, pod}}
	m := Machine{
		Want: Want{Kinds: map[string]*Definition{
			"a": {Unrequested: &Unrequested{Report: ReportAll, Beside: []string{"secret.service"}}}, "b": {},
		}},
		Have: map[string]Have{"a": {Accelerators: []Accelerator{{ID: "x", Unrequested: have}, {ID: "y"}}}},
	}
	text, err := json.Marshal(m.Public())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "secret") || strings.Contains(string(text), "0f0f") {
		t.Errorf("%s", text)
	}
	shown := m.Public().Have["a"].Accelerators[0].Unrequested
	if got := strings.Join(shown.Lines(), "; "); got != "process 1 x (of the host); "+
		"process 2 x (container unnamed, which is in no pod); process 3 x (pod /p, to which no device of the kind is given)" {
		t.Error(got)
	}
	if have.Users[0].Unit == "" || m.Want.Kinds["a"].Unrequested.Beside == nil {
		t.Error("the snapshot itself was changed")
	}
}

// TestUnrequestedDiff: who is reported for the first time is news once, also after a time in which it was not known who
// uses devices.
func TestUnrequestedDiff(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	machine := func(taken int64, users ...UnrequestedUser) Machine {
		have := &UnrequestedHave{Count: len(users), Users: users}
		if users == nil {
			have = nil
		}
		return Machine{
			Taken: at(taken), Status: map[string]Status{"k": {}},
			Have: map[string]Have{"k": {Accelerators: []Accelerator{
				{ID: "a", Health: Health{State: Healthy}, Unrequested: have},
			}}},
		}
	}
	user := func(since int64, unit string) UnrequestedUser {
		u := unrequestedUser(7, at(since))
		u.Unit = unit
		return u
	}
	unknown := machine(30)
	unknown.Have["k"].Accelerators[0].Unrequested = &UnrequestedHave{Unknown: "why"}
	for name, c := range map[string]struct {
		from, to Machine
		want     []string
	}{
		"nobody":               {machine(10), machine(20), nil},
		"the first machine":    {Machine{}, machine(20, user(15, "x")), []string{"x"}},
		"one":                  {machine(10), machine(20, user(15, "x")), []string{"x"}},
		"two":                  {machine(10), machine(20, user(15, "x"), user(15, "y")), []string{"x", "y"}},
		"still":                {machine(10, user(15, "x")), machine(20, user(15, "x")), nil},
		"another":              {machine(20, user(15, "x")), machine(30, user(15, "x"), user(25, "y")), []string{"y"}},
		"known again":          {unknown, machine(40, user(15, "x")), nil},
		"known again, and new": {unknown, machine(40, user(15, "x"), user(35, "y")), []string{"y"}},
		"ended":                {machine(20, user(15, "x")), machine(30), nil},
		// The time of a snapshot is that of the beginning of the pass that takes it.
		"seen at the end of a pass": {machine(14, user(15, "x")), machine(20, user(15, "x")), nil},
	} {
		var got []string
		for _, change := range Diff(c.from, c.to) {
			if u, is := change.(UnrequestedChange); is {
				for _, who := range u.Users {
					got = append(got, who.Unit)
				}
				if u.Of() != "k" || u.Device != "a" || !strings.Contains(u.String(), "process 7 x (of the host, in ") {
					t.Errorf("%s: %+v, %s", name, u, u)
				}
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	c := UnrequestedChange{Users: []UnrequestedUser{user(1, "x")}}
	if got := c.Public().String(); got != "process 7 x (of the host)" || c.Users[0].Unit != "x" {
		t.Errorf("%s, and itself %s", got, c)
	}
	c.Users = append(c.Users, user(1, "y"))
	if text := c.String(); strings.Count(text, "process") != 2 {
		t.Error(text)
	}
}
