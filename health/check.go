package health

import "github.com/acceld/acceld/accel"

// fromCheck is the source of findings about a device that has failed its self-test after its driver was proven.
const fromCheck = "check"

// CheckFailed records that a device has failed its self-test. That stands until a driver is bound to it again, as after
// a reset.
func (e *Engine) CheckFailed(id, message string) {
	if e.checkFailed(id, message) {
		e.o.Changed()
	}
}

func (e *Engine) checkFailed(id, message string) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	news = e.note(finding{
		Device: id, Source: fromCheck, State: accel.Unhealthy, Reason: accel.CheckFailed,
		Action: accel.ActionResetDevice, Said: "it failed the self-test that a claim asked for", Line: line(message),
		Binding: e.binding(id),
	})
	if news {
		e.save()
	}
	return news
}
