package driver

type small struct{}

func (small) one()  {}
func (*small) two() {}

type large[T any] struct{}

func (large[T]) one()     {}
func (*large[T]) two()    {}
func (l *large[T]) tree() {}
