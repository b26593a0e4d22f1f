package probe

import (
	"context"
	"errors"
	"maps"

	"github.com/acceld/acceld/accel"
)

// Parts returns how many partitions of each profile a device has, as the program of its kind last said. It is an error
// if that is not known now.
func (k *Supervisor) Parts(kind, device string) (map[string]int, error) {
	p := k.known(kind)
	if p == nil {
		return nil, errors.New("no program runs")
	}
	b := &p.book
	b.mu.Lock()
	defer b.mu.Unlock()
	d, told := b.devices[device]
	if !told || !b.fresh || b.problem != nil || b.stale() {
		return nil, errors.New("the program does not say how it is divided")
	}
	parts := map[string]int{}
	for _, x := range d.Partitions {
		parts[accel.PartitionWord(x.Profile)]++
	}
	return parts, nil
}

// Divide asks the program of a kind to divide a device that nobody uses, or to make it whole if there are no parts. It
// returns after the program has reported the outcome.
func (k *Supervisor) Divide(ctx context.Context, kind, device string, parts map[string]int) error {
	p := k.known(kind)
	if p == nil {
		return errors.New("no program runs")
	}
	x := &division{parts: maps.Clone(parts), answer: make(chan string, 1), busy: true}
	p.divisions.mu.Lock()
	_, busy := p.divisions.of[device]
	if !busy {
		p.divisions.of[device] = x
	}
	p.divisions.mu.Unlock()
	if busy {
		return errors.New("it is being divided already")
	}
	defer func() {
		p.divisions.mu.Lock()
		defer p.divisions.mu.Unlock()
		delete(p.divisions.of, device)
	}()
	if problem := p.request(ctx, device, parts, x); problem != "" {
		return errors.New(problem)
	}
	return nil
}
