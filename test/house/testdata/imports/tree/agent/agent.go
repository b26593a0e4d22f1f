package agent

import (
	_ "example.com/house/accel"
	_ "example.com/house/driver"
	_ "example.com/house/vendors"
)
