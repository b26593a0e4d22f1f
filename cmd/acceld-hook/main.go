// Command acceld-hook is acceld's OCI hook, which the container runtime starts at createRuntime. It stops a container
// that was given a device that is not ready, with one line that appears in the pod's event, and lets every other
// container start. It changes nothing, and reads nothing that the image or the pod's author wrote.
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
