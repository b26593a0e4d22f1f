package dra

import (
	"sync"
	"time"
)

// stranded holds the claims whose device failed after the scheduler had allocated it and before any pod had it. The
// kubelet keeps asking for such a claim, and the scheduler does not choose again for a pod that is bound.
type stranded struct {
	mu     sync.Mutex
	claims map[string]refusal // by UID
}

// refusal is what a claim waits for.
type refusal struct {
	devices     []string // that are sick, by their names at the API server
	first, last time.Time
}

// forgotten is how long after the kubelet's last request a claim is forgotten. The kubelet asks at least every two
// minutes or so (pkg/kubelet, MaxPodSyncBackoff).
const forgotten = 5 * time.Minute

// refuse notes that a claim was not prepared because these devices are sick.
func (s *stranded) refuse(uid string, devices []string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil {
		s.claims = map[string]refusal{}
	}
	c, known := s.claims[uid]
	if !known || now.Sub(c.last) > forgotten {
		c.first = now
	}
	c.devices, c.last = devices, now
	s.claims[uid] = c
}

// over forgets a claim. It reports whether it was one of these.
func (s *stranded) over(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.claims[uid]
	delete(s.claims, uid)
	return known
}

// since returns the devices that claims wait for, and since when.
func (s *stranded) since(now time.Time) map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]time.Time{}
	for uid, c := range s.claims {
		if now.Sub(c.last) > forgotten {
			delete(s.claims, uid)
			continue
		}
		for _, d := range c.devices {
			if first, there := out[d]; !there || c.first.Before(first) {
				out[d] = c.first
			}
		}
	}
	return out
}

// strand notes that a claim waits for devices that are sick.
func (p *Plugin) strand(r record) {
	v := p.list.load()
	var sick []string
	for _, g := range r.Devices {
		if a, known := v.accelerators[g.Device]; known && !g.Admin && !a.Health.Usable() {
			sick = append(sick, g.Device)
		}
	}
	if len(sick) == 0 {
		p.stranded.over(r.UID)
		return
	}
	p.stranded.refuse(r.UID, sick, time.Now())
	p.poke()
}

// unstrand notes that a claim waits no longer.
func (p *Plugin) unstrand(uid string) {
	if p.stranded.over(uid) {
		p.poke()
	}
}

// leaving returns the devices whose waiting pods must go elsewhere: the pods have waited long enough, longer if acceld
// resets the device, and no other pod has the device and would end too. held are the devices that a claim has.
func (s *stranded) leaving(v *version, held map[string]bool, t timing, now time.Time) map[string]bool {
	out := map[string]bool{}
	for name, first := range s.since(now) {
		a := v.accelerators[name]
		patience := t.strand
		if v.def.NeedsRepair(a) {
			patience = t.strandReset
		}
		common := a.Repair != nil && a.Repair.Common // there is hardly another device for them
		if !held[name] && !common && now.Sub(first) >= patience {
			out[name] = true
		}
	}
	return out
}
