package driver

import "time"

func wait() { time.Sleep(time.Second) }
