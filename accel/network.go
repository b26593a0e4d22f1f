package accel

// NetworkFunction is a PCI function of a network controller, with what the kernel reports about it. Package detect
// reads it rarely, so a state is as old as the last event of the function or the last resync. There are at most 256
// of them.
type NetworkFunction struct {
	Address  string `json:"address"`
	NUMANode int    `json:"numaNode"` // -1 if the platform does not report one
	// Ports are the PCI bridges above the function, the root port first; empty on a root bus. An accelerator with the
	// same ports is near it.
	Ports  []string `json:"ports,omitempty"`
	Driver string   `json:"driver,omitempty"`
	// Firmware is the running version; empty if neither devlink nor RDMA reports it.
	Firmware string `json:"firmware,omitempty"`
	// Versions are the hardware and running firmware versions that devlink reports, by the driver's names, such as
	// "fw.psid".
	Versions map[string]string `json:"versions,omitempty"`
	// Pending are versions in flash that differ from the running ones and start with the next reset of the device.
	Pending    map[string]string  `json:"pending,omitempty"`
	Interfaces []NetworkInterface `json:"interfaces,omitempty"`
	RDMA       []RDMADevice       `json:"rdma,omitempty"`
	// Reporters are devlink's health reporters.
	Reporters []HealthReporter `json:"reporters,omitempty"`
	// Unknown says why some of this is missing, such as a network namespace that the agent may not enter. If it is
	// empty, the kernel has answered, and what is missing does not exist.
	Unknown string `json:"unknown,omitempty"`
}

// NetworkInterface is a network device of a function, in the network namespace of the host's process 1.
type NetworkInterface struct {
	Name string `json:"name"`
	MAC  string `json:"mac,omitempty"`
	// State is the operational state (RFC 2863), such as "up", "down" or "lower-layer-down"; empty while unknown.
	State string `json:"state,omitempty"`
	// SpeedMbps is zero if the link is down or does not report a speed.
	SpeedMbps int `json:"speedMbps,omitempty"`
	MTU       int `json:"mtu,omitempty"` // bytes
}

// RDMADevice is an RDMA device of a function, such as "mlx5_0".
type RDMADevice struct {
	Name     string `json:"name"`
	NodeGUID string `json:"nodeGUID,omitempty"` // such as "9803:9b03:00c0:ffee"
	// SystemGUID is the same for all functions of one card, or of one switch with several.
	SystemGUID string `json:"systemGUID,omitempty"`
	// Verbs is the device node by which programs use it, such as "/dev/infiniband/uverbs0"; empty if there is none.
	Verbs string     `json:"verbs,omitempty"`
	Ports []RDMAPort `json:"ports,omitempty"`
}

// RDMAPort is a port of an RDMA device.
type RDMAPort struct {
	Number int `json:"number"`
	// State is "active", "armed", "init", "down" or "active-defer"; empty while unknown.
	State string `json:"state,omitempty"`
	// Physical is the state of the physical link, such as "link-up", "polling" or "disabled".
	Physical string `json:"physical,omitempty"`
	// GUID is the port GUID, such as "9803:9b03:00c0:ffee"; empty on Ethernet, where it is derived from the MAC
	// address.
	GUID string `json:"guid,omitempty"`
	// Subnet is the subnet prefix that the subnet manager has given the port, such as "fec0:0000:0000:0001"; empty for
	// the default prefix, which says nothing, and on Ethernet.
	Subnet string `json:"subnet,omitempty"`
	// Layer is "InfiniBand" or "Ethernet".
	Layer string `json:"layer,omitempty"`
	Rate  string `json:"rate,omitempty"` // as the kernel writes it, such as "400 Gb/sec (4X NDR)"
	// Interface is the network device of the port; empty if it has none.
	Interface string `json:"interface,omitempty"`
}

// HealthReporter is one of devlink's health reporters, such as "fw_fatal" or "tx".
type HealthReporter struct {
	Name string `json:"name"`
	// State is "healthy" or "error".
	State      string `json:"state"`
	Errors     uint64 `json:"errors"`
	Recoveries uint64 `json:"recoveries"`
}
