package accel

// MetricPage is a page of metrics under the names that dashboards and alerts made for another exporter ask for. It is
// data: each row is a number that acceld has anyway, under another name, with another unit and other labels.
type MetricPage struct {
	// Name is the last part of its path and the word for it in the configuration, such as "compute".
	Name string
	// Title says whose names they are, for people.
	Title string
	// Labels are those of every series of the page.
	Labels []PageLabel
	Rows   []PageRow
}

// PageLabel is a label and what its value is.
type PageLabel struct {
	Name string
	Fact PageFact
}

// PageFact is a text about a series.
type PageFact string

// The facts. Those about a device are empty in series about the node, and those about a pod where nobody holds the
// device; a device that several containers hold has a series for each.
const (
	PageNode PageFact = "node" // name of the node
	// number of the device on the node, from 0; a partition has its device's
	PageIndex PageFact = "index"
	// the vendor's own name of the device, else its serial number, else its ID
	PageUUID          PageFact = "uuid"
	PageAddress       PageFact = "address"       // PCI address with a domain of eight digits
	PageDeviceNode    PageFact = "deviceNode"    // name of its first device node, without the directory
	PageModel         PageFact = "model"         // name of the product
	PageDriverVersion PageFact = "driverVersion" // version of the kernel driver
	PageProfile       PageFact = "profile"       // of a partition
	PagePartition     PageFact = "partition"     // number of a partition in its device, from 0
	PageNamespace     PageFact = "namespace"
	PagePod           PageFact = "pod"
	PagePodUID        PageFact = "podUID"
	PageContainer     PageFact = "container"
)

// PageRow is one metric of a page. Exactly one of Reading, LastCode and Node says what its value is.
type PageRow struct {
	Name, Help string
	Counter    bool
	// Reading is the metric of each accelerator that the value is read from, such as "accelerator_temperature_celsius".
	// Less, if any, is one that is subtracted; without it there is no value. Scale makes the unit of the name of the
	// outcome; 0 is 1.
	Reading, Less string
	Scale         float64
	// LastCode is the code of the last error of each accelerator that the kernel log reported, 0 when there was none.
	LastCode bool
	// Node is a number about the whole node.
	Node NodeFact
}

// NodeFact is a number about the whole node. Kinds without an accelerator do not count.
type NodeFact string

// The numbers about a node. Times are seconds since the epoch and absent while nothing of the sort has happened.
const (
	NodeDriverReady   NodeFact = "driverReady"   // 1 when the drivers of all kinds are ready
	NodeRuntimeReady  NodeFact = "runtimeReady"  // 1 when containers get the devices of all kinds
	NodePluginReady   NodeFact = "pluginReady"   // 1 when the kubelet offers all kinds
	NodeProven        NodeFact = "proven"        // 1 when the devices of all kinds have passed their check
	NodeProvenTime    NodeFact = "provenTime"    // when the last kind did
	NodeOfferedTime   NodeFact = "offeredTime"   // when the kubelet was last seen to offer all kinds
	NodeAllocatable   NodeFact = "allocatable"   // devices that the kubelet offers
	NodeAccelerators  NodeFact = "accelerators"  // accelerators on the bus
	NodeCollectedTime NodeFact = "collectedTime" // when the metrics of all kinds were last read
)
