package accel

// NetworkFunction is a PCI function of a network controller, with what the kernel says of it. Package detect reads it
// seldom: a state is as old as the last event of the function, or the last resync. There are at most 256 of them.
type NetworkFunction struct {
	Address  string `json:"address"`
	NUMANode int    `json:"numaNode"` // -1 when the platform names none
	// Ports are the PCI bridges above the function, the root port first; empty on a root bus. An accelerator with the
	// same ones is near it.
	Ports  []string `json:"ports,omitempty"`
	Driver string   `json:"driver,omitempty"`
	// Firmware is the version that runs; empty when neither devlink nor RDMA says it.
	Firmware string `json:"firmware,omitempty"`
	// Versions are what devlink says of hardware and running firmware, by the driver's names, such as "fw.psid".
	Versions map[string]string `json:"versions,omitempty"`
	// Pending are versions in flash that differ from those that run: the next reset of the device starts them.
	Pending    map[string]string  `json:"pending,omitempty"`
	Interfaces []NetworkInterface `json:"interfaces,omitempty"`
	RDMA       []RDMADevice       `json:"rdma,omitempty"`
	// Reporters are devlink's health reporters.
	Reporters []HealthReporter `json:"reporters,omitempty"`
	// Unknown says why a part of this is missing, such as a network namespace that the agent may not enter. It is empty
	// when the kernel has answered: what is missing then is not there.
	Unknown string `json:"unknown,omitempty"`
}

// NetworkInterface is a network device of a function, in the network namespace of the host's process 1.
type NetworkInterface struct {
	Name string `json:"name"`
	MAC  string `json:"mac,omitempty"`
	// State is the operational state (RFC 2863), such as "up", "down" or "lower-layer-down"; empty while not known.
	State string `json:"state,omitempty"`
	// SpeedMbps is zero when the link is down or does not say.
	SpeedMbps int `json:"speedMbps,omitempty"`
	MTU       int `json:"mtu,omitempty"` // bytes
}

// RDMADevice is an RDMA device of a function, such as "mlx5_0".
type RDMADevice struct {
	Name     string     `json:"name"`
	NodeGUID string     `json:"nodeGUID,omitempty"` // such as "9803:9b03:00c0:ffee"
	Ports    []RDMAPort `json:"ports,omitempty"`
}

// RDMAPort is a port of an RDMA device.
type RDMAPort struct {
	Number int `json:"number"`
	// State is "active", "armed", "init", "down" or "active-defer"; empty while not known.
	State string `json:"state,omitempty"`
	// Physical is the state of the link below, such as "link-up", "polling" or "disabled".
	Physical string `json:"physical,omitempty"`
	// GUID is the port's, such as "9803:9b03:00c0:ffee"; empty on Ethernet, where it follows from the MAC address.
	GUID string `json:"guid,omitempty"`
	// Layer is "InfiniBand" or "Ethernet".
	Layer string `json:"layer,omitempty"`
	Rate  string `json:"rate,omitempty"` // as the kernel writes it, such as "400 Gb/sec (4X NDR)"
	// Interface is the network device of the port; empty when it has none.
	Interface string `json:"interface,omitempty"`
}

// HealthReporter is one of devlink's, such as "fw_fatal" or "tx".
type HealthReporter struct {
	Name string `json:"name"`
	// State is "healthy" or "error".
	State      string `json:"state"`
	Errors     uint64 `json:"errors"`
	Recoveries uint64 `json:"recoveries"`
}
