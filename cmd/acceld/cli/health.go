package cli

import "github.com/acceld/acceld/accel"

// health returns the health of a device in its colour.
func (i palette) health(a accel.Accelerator) string {
	h := a.Health
	switch {
	case a.Seen() == accel.HealthUnknown:
		return i.wait(a.Seen())
	case h.State == accel.Healthy:
		return i.good(string(h.State))
	case h.Usable():
		return i.wait(string(h.State))
	}
	return i.bad(string(h.State))
}
