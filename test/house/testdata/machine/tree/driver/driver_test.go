package driver

import _ "os/exec"
