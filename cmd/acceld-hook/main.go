// Command acceld-hook is the OCI hook of acceld, started by the container runtime at createRuntime: it stops a
// container that was given a device that is not ready, with one line that the pod's event shows, and lets every other
// container pass. It changes nothing, and reads nothing that the image or the pod's author wrote.
package main

import (
	"fmt"
	"os"

	"github.com/acceld/acceld/runtime/gate"
)

func main() {
	request, err := gate.Parse(os.Args[1:])
	if err == nil {
		err = gate.Decide(request, os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "acceld:", err)
		os.Exit(1)
	}
}
