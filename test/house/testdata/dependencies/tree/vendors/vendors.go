package vendors

import (
	_ "example.com/house/accel"
	_ "golang.org/x/sys/unix"
	_ "sigs.k8s.io/yaml"
)
