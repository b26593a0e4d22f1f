package stage

// KillAt is a script that makes the agent of the unit be killed when it writes to the file $1 next. It returns when it
// is sure to be. The unit "killer" is active until it has happened.
const KillAt = `pid=$(systemctl show -P MainPID acceld)
systemd-run --quiet --collect --unit=killer strace -f -qq -o /dev/null -p "$pid" -e signal=none -e trace=write -e inject=write:signal=KILL:when=1 -P "$1"
for i in $(seq 600); do if grep -q '^TracerPid:[[:space:]]*[1-9]' /proc/$pid/task/*/status && ! grep -lq '^TracerPid:[[:space:]]*0' /proc/$pid/task/*/status; then exit 0; fi; sleep 0.1; done
exit 1`

// Sicken is a script that makes the device $1 report what only a reset ends.
const Sicken = `echo dead > "/sys/bus/pci/devices/$1/inject_error"; echo none > "/sys/bus/pci/devices/$1/inject_error"`

// ResetSteps are the files to which a reset of a device writes, in this order.
func ResetSteps(device string) []string {
	return []string{
		"/sys/bus/pci/drivers/edu/unbind", "/sys/bus/pci/devices/" + device + "/reset", "/sys/bus/pci/drivers/edu/bind",
	}
}
