package driver

import (
	_ "example.com/house/driver/store"
	_ "example.com/house/host"
	_ "example.com/house/kube"
)
