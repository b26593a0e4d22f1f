package vendors

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/acceld/acceld/accel"
)

func (c *checker) verdict(field string, v accel.Verdict) {
	c.consequence(field, v.State, v.Action, v.For)
	if v.State == "" && (v.Action != "" || v.For != "") {
		c.bad(field+".state", "is missing: what is only counted has neither action nor time")
	}
}

func (c *checker) consequence(field string, state accel.HealthState, action accel.Action, duration string) {
	optional(c, field+".state", state, accel.Degraded, accel.Unhealthy)
	optional(c, field+".action", action, accel.Actions()...)
	c.duration(field+".for", duration)
}

// signals checks the sources of health other than attributes: rules for the kernel log, and limits.
func (c *checker) signals(def *accel.Definition) {
	for i, r := range def.Log {
		field := at("log", i)
		x, err := regexp.Compile(r.Match)
		switch {
		case err != nil:
			c.bad(field+".match", "%v", err)
		case x.MatchString(""):
			c.bad(field+".match", "%q matches every line", r.Match)
		case len(r.Codes) > 0 && x.SubexpIndex("code") < 0:
			c.bad(field+".match", "%q has no group (?P<code>…) for the codes", r.Match)
		}
		c.verdict(field+".otherwise", r.Otherwise)
		for _, code := range slices.Sorted(maps.Keys(r.Codes)) {
			c.verdict(fmt.Sprintf("%s.codes[%q]", field, code), r.Codes[code])
		}
	}
	for i, l := range def.Limits {
		field := at("limits", i)
		c.measured(def, field+".metric", l.Metric)
		if l.AboveMetric != "" {
			c.measured(def, field+".aboveMetric", l.AboveMetric)
			if l.Above != 0 {
				c.bad(field, "either above or aboveMetric is needed")
			}
		}
		if l.Until > l.Above && l.AboveMetric == "" {
			c.bad(field+".until", "%v is above the limit of %v", l.Until, l.Above)
		}
		c.consequence(field, l.State, l.Action, l.For)
	}
}

// measured rejects a metric that the definition does not have. With a probe program any metric is allowed.
func (c *checker) measured(def *accel.Definition, field, name string) {
	if def.Probe == nil && !slices.ContainsFunc(def.AllMetrics(), func(m accel.MetricSource) bool {
		return m.Name == name
	}) {
		c.bad(field, "%q is not among the metrics of the definition", name)
	}
}
