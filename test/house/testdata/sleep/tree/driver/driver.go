package driver

import clock "time"

func wait() { clock.Sleep(clock.Second) }
