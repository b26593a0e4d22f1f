package vendors

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/acceld/acceld/accel"
)

func (c *checker) verdict(field string, v accel.Verdict) {
	c.oneOf(field+".state", string(v.State), "", string(accel.Degraded), string(accel.Unhealthy))
	c.action(field, v.Action)
	c.duration(field+".for", v.For)
	if v.State == "" && (v.Action != "" || v.For != "") {
		c.bad(field+".state", "is missing: what is only counted has neither action nor time")
	}
}

func (c *checker) action(field string, a accel.Action) {
	allowed := []string{""}
	for _, known := range accel.Actions() {
		allowed = append(allowed, string(known))
	}
	c.oneOf(field+".action", string(a), allowed...)
}

// signals checks the sources of health other than attributes: rules for the kernel log, and limits.
func (c *checker) signals(def *accel.Definition) {
	for i, r := range def.Log {
		field := fmt.Sprintf("log[%d]", i)
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
		field := fmt.Sprintf("limits[%d]", i)
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
		c.oneOf(field+".state", string(l.State), "", string(accel.Degraded), string(accel.Unhealthy))
		c.action(field, l.Action)
		c.duration(field+".for", l.For)
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
