package driver

type t struct{}

func (t) init() {}

func init() {}
