package kmod

import (
	_ "example.com/house/driver"
	_ "example.com/house/driver/signing"
	_ "example.com/house/driver/store"
)
