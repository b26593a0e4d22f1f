package host

import (
	"os"
	"os/exec"
)

func f() { _, _ = os.ReadFile("/etc/passwd") }
