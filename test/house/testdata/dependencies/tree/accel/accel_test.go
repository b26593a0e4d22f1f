package accel

import _ "github.com/google/go-cmp/cmp"
