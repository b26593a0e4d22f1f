package agent

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/settings"
)

// newSettings returns the keeper of what is configured about devices.
func (a *Agent) newSettings() *settings.Keeper {
	return settings.New(settings.Options{
		Host: a.Host, Ledger: a.Ledger, Log: a.Log, Every: a.Config.SampleEvery,
		Follow: func() (accel.Machine, <-chan struct{}) { return a.loop.Follow() },
		Users:  repairs{a}.usersOf, FunctionUsers: a.functionUsers, Told: a.programs.Settings, Set: a.programs.Set,
		Changed: a.changed,
	})
}
