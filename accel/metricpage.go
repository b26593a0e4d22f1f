package accel

// MetricPage is a page of metrics under the names of another exporter, for dashboards and alerts written for that
// exporter. It is data: each row is a number that acceld has anyway, with another name, unit and labels.
type MetricPage struct {
	// Name is the last part of its path and its name in the configuration, such as "compute".
	Name string
	// Title tells people whose names they are.
	Title string
	// Labels are set on every series of the page.
	Labels []PageLabel
	Rows   []PageRow
}

// PageLabel is a label and the source of its value.
type PageLabel struct {
	Name string
	Fact PageFact
}

// PageFact is a text about a series.
type PageFact string

// The facts. Facts about a device are empty in series about the node, and facts about a pod are empty if no pod holds
// the device. A device that several containers hold has one series for each.
const (
	PageNode PageFact = "node" // name of the node
	// number of the device on the node, from 0; a partition has the number of its device
	PageIndex PageFact = "index"
	// the vendor's own name for the device, else its serial number, else its ID
	PageUUID          PageFact = "uuid"
	PageAddress       PageFact = "address"       // PCI address with a domain of eight digits
	PageDeviceNode    PageFact = "deviceNode"    // name of its first device node, without the directory
	PageModel         PageFact = "model"         // name of the product
	PageDriverVersion PageFact = "driverVersion" // version of the kernel driver
	PageProfile       PageFact = "profile"       // profile of a partition
	PagePartition     PageFact = "partition"     // number of a partition in its device, from 0
	PageNamespace     PageFact = "namespace"
	PagePod           PageFact = "pod"
	PagePodUID        PageFact = "podUID"
	PageContainer     PageFact = "container"
)

// PageRow is one metric of a page. Exactly one of Reading, LastCode and Node says where its value comes from.
type PageRow struct {
	Name, Help string
	Counter    bool
	// Reading is the accelerator metric that provides the value, such as "accelerator_temperature_celsius". If Less
	// is set, that metric is subtracted, and while it is unknown there is no value. Scale is multiplied with the
	// result to match the unit in Name; 0 means 1.
	Reading, Less string
	Scale         float64
	// LastCode reports the code of each accelerator's last error in the kernel log, 0 if there was none.
	LastCode bool
	// Node is a fact about the whole node.
	Node NodeFact
}

// NodeFact is a number about the whole node. Kinds without an accelerator are ignored.
type NodeFact string

// The node facts. Times are seconds since the epoch, and absent until the event has happened once.
const (
	NodeDriverReady   NodeFact = "driverReady"   // 1 when the drivers of all kinds are ready
	NodeRuntimeReady  NodeFact = "runtimeReady"  // 1 when containers get the devices of all kinds
	NodePluginReady   NodeFact = "pluginReady"   // 1 when the kubelet offers all kinds
	NodeProven        NodeFact = "proven"        // 1 when the devices of all kinds have passed a check; 0 if a kind has none
	NodeProvenTime    NodeFact = "provenTime"    // when the last kind did
	NodeOfferedTime   NodeFact = "offeredTime"   // when the kubelet was last seen offering all kinds
	NodeAllocatable   NodeFact = "allocatable"   // devices that the kubelet offers
	NodeAccelerators  NodeFact = "accelerators"  // accelerators on the bus
	NodeCollectedTime NodeFact = "collectedTime" // when the metrics of all kinds were last read
)
