package detect

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// health reads the health of a device. If an attribute cannot be read, health returns an error (unknown: the caller
// keeps the last answer), unless another attribute shows that the device is unhealthy. A value other than the healthy
// one means what the definition says. If the definition says nothing about it, the device is unhealthy, with the value
// as message. A device that is no longer on the bus is gone. Since is zero.
func health(h *host.Host, from attributes, def *accel.Definition, id string) (accel.Health, error) {
	dir, s := h.Devices().Dir(id), accel.SubsystemOf(id)
	if _, err := h.Stat(dir); errors.Is(err, fs.ErrNotExist) && h.Exists(s.Dir) {
		return accel.Health{State: accel.Gone, Reason: accel.DeviceGone, Message: id + " is not " + s.On()}, nil
	}
	if unreachable(h, from, id) {
		return accel.Health{
			State: accel.Unhealthy, Reason: accel.DeviceUnreachable, Action: accel.ActionReboot,
			Message: "it does not answer on the bus any more",
		}, nil
	}
	return judge(from, def.Health, id)
}

// unreachable reports whether the device no longer answers on the bus: the bus then returns all bits set. The vendor's
// and the device's ID alone say nothing: a virtual function has none and always returns all bits set for them (Single
// Root I/O Virtualization 1.1, 3.4.1.1). The status and the class that follow are never all ones. A suspended device is
// not woken up for this check.
func unreachable(h *host.Host, from attributes, id string) bool {
	if suspended(from) {
		return false
	}
	if !accel.OnPCI(id) {
		return false // what is on the bus of another subsystem is told by its driver
	}
	f, err := h.Open(path.Join(pciDevices, id, "config"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // read only
	head := make([]byte, 16)
	_, err = io.ReadFull(f, head)
	return err == nil && len(bytes.TrimLeft(head, "\xff")) == 0
}

// judge returns the worst verdict of the attributes.
func judge(from attributes, sources []accel.HealthSource, id string) (accel.Health, error) {
	worst, unknown := accel.Health{State: accel.Healthy}, error(nil)
	for _, s := range sources {
		text, err := from.Read(s.File)
		switch {
		case s.Optional && absent(err):
		case err != nil:
			unknown = accel.Problemf(accel.CollectFailed, "cannot read the health of %s: %v", id, err)
		default:
			if told := verdict(s, text); told.State.Worse(worst.State) {
				worst = told
			}
		}
	}
	if unknown != nil && worst.State != accel.Unhealthy {
		return accel.Health{}, unknown
	}
	return worst, nil
}

// verdict returns what the content of an attribute means.
func verdict(s accel.HealthSource, text string) accel.Health {
	if x, err := regexp.Compile(s.Match); err == nil && s.Match != "" { // the definition was validated
		if part, ok := matched(x, text); ok {
			text = part
		}
	}
	v, listed := s.Verdicts[text]
	if text == s.Healthy || listed && v.State == "" {
		return accel.Health{State: accel.Healthy}
	}
	if !listed {
		v = s.Otherwise
	}
	if v.State == "" {
		v.State = accel.Unhealthy
	}
	h := accel.Health{State: v.State, Reason: accel.DeviceUnhealthy, Action: v.Action, Message: clean(text)}
	if v.Title != "" {
		h.Message, h.Evidence = v.Title, s.File+": "+clean(text)
	}
	return h
}
