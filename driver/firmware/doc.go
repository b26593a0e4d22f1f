// Package firmware makes the firmware that came with a driver visible to the kernel. It may write below the agent's own
// directory and /lib/firmware/updates, and set the kernel's directory of firmware where nobody uses it; all of it is in
// the ledger. It never replaces a file or a setting of somebody else.
package firmware
