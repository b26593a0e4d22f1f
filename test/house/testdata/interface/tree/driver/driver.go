package driver

type reader interface {
	read()
}

type wide interface {
	reader
	write()
}
