package vendors

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/acceld/acceld/accel"
)

// part checks an expression that selects a part of an attribute.
func (c *checker) part(field, text string) {
	if text == "" {
		return
	}
	x, err := regexp.Compile(text)
	switch {
	case err != nil:
		c.bad(field, "%v", err)
	case x.MatchString(""):
		c.bad(field, "%q matches every line", text)
	case x.NumSubexp() > 0 && x.SubexpIndex("value") < 0:
		c.bad(field, "%q has groups, and none is (?P<value>…)", text)
	}
}

// health checks an attribute that shows the health of a device.
func (c *checker) health(field string, h accel.HealthSource) {
	c.attribute(field+".file", h.File)
	c.part(field+".match", h.Match)
	told := map[string]accel.Verdict{field + ".otherwise": h.Otherwise}
	for content, v := range h.Verdicts {
		if content == h.Healthy {
			c.bad(field+".verdicts", "%q is the healthy content", content)
		}
		told[fmt.Sprintf("%s.verdicts[%q]", field, content)] = v
	}
	for _, name := range slices.Sorted(maps.Keys(told)) {
		c.verdict(name, told[name])
		if told[name].For != "" {
			c.bad(name+".for", "an attribute counts for as long as it says so")
		}
	}
	if h.Otherwise != (accel.Verdict{}) && h.Otherwise.State == "" {
		c.bad(field+".otherwise.state", "is missing: what is known to be well is in verdicts")
	}
}

// metric checks an attribute that holds a number.
func (c *checker) metric(field string, m accel.MetricSource) {
	c.matches(field+".name", m.Name, metricForm())
	c.attribute(field+".file", m.File)
	c.part(field+".match", m.Match)
	optional(c, field+".combine", m.Combine, accel.Combines()...)
	if m.Combine == accel.CombineCount && m.Match == "" {
		c.bad(field+".match", "is needed: it says what is counted")
	}
}
