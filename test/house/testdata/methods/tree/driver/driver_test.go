package driver

func (small) three() {}
