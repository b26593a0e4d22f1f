package host

import _ "golang.org/x/sys/unix"
