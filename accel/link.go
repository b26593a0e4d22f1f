package accel

// With returns what a link can be at best with the port at its other end, as far as both are known.
func (l Link) With(port Link) (width int, speedGTs float64) {
	width, speedGTs = l.MaxWidth, l.MaxSpeedGTs
	if port.MaxWidth > 0 {
		width = min(width, port.MaxWidth)
	}
	if port.MaxSpeedGTs > 0 {
		speedGTs = min(speedGTs, port.MaxSpeedGTs)
	}
	return width, speedGTs
}
