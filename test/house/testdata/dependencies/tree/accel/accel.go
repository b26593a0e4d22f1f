package accel

import (
	_ "net/url"

	_ "sigs.k8s.io/yaml"
)
