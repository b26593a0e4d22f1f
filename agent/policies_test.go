package agent

import (
	"testing"

	"github.com/acceld/acceld/accel"
)

func TestPolicies(t *testing.T) {
	no := false
	p := Policies{
		Labels: map[string]string{"pool": "a", "noise": "1"},
		All: []accel.Policy{
			{Name: "fleet", Spec: accel.PolicySpec{
				NodeSelector: map[string]string{"pool": "a"}, Upgrade: &accel.Rollout{},
				Kinds: map[string]accel.KindConfig{
					"k-x": {Driver: accel.KindDriverOverride{Version: "2"}},
					"k-y": {Enabled: &no}, "k-none": {},
				},
			}},
			{
				Name: "bad",
				Spec: accel.PolicySpec{Kinds: map[string]accel.KindConfig{
					"k-z": {Driver: accel.KindDriverOverride{Parameters: map[string]map[string]string{"q": {}}}},
				}},
			},
		},
	}
	defs := map[string]*accel.Definition{"k-x": {Kind: "k-x"}, "k-y": {Kind: "k-y"}, "k-z": {Kind: "k-z"}}
	got, problems := p.Apply(defs)
	if got["k-x"].Driver.Version != "2" || *got["k-y"].Enabled || got["k-z"] != defs["k-z"] ||
		defs["k-x"].Driver.Version != "" {
		t.Errorf("%+v", got)
	}
	if len(problems) != 1 || problems[0].Reason != accel.PolicyInvalid {
		t.Errorf("%v", problems)
	}
	if o := p.Order(got); o["k-x"].Driver.Upgrade.By != "fleet" || o["k-z"].Driver.Upgrade.By != "" ||
		o["k-x"].Driver.Upgrade.Digest != p.All[0].DriverDigest("k-x") {
		t.Errorf("%+v", o)
	}
	odd := Policies{All: []accel.Policy{{Name: "odd", Spec: accel.PolicySpec{
		Upgrade: &accel.Rollout{}, Kinds: map[string]accel.KindConfig{
			"k-z": {Driver: accel.KindDriverOverride{Parameters: map[string]map[string]string{"q": {}}}},
		},
	}}}}
	if u := odd.Order(defs)["k-z"].Driver.Upgrade; u.By != "odd" || u.Digest != "" {
		t.Errorf("a policy that does not fit is said to be served: %+v", u)
	}
	q := p
	q.Labels = map[string]string{"pool": "a", "noise": "2"}
	if !p.Equal(q) {
		t.Error("a label that nobody asks for is news")
	}
	q.Labels = map[string]string{"pool": "b"}
	if p.Equal(q) {
		t.Error("a label that selects is no news")
	}
}
