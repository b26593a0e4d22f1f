// Package firmware makes the firmware that came with a driver visible to the kernel. It may write below the agent's
// own directory and /lib/firmware/updates, and set the kernel's custom firmware directory if that is unused; the
// ledger records all of it. It never replaces a file or a setting that acceld does not own.
package firmware
