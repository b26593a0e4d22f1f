package docs

// questions are the panels that a person looks at first. The title of each is the question that it answers; a table
// without rows is the answer "nobody" or "nothing".
func questions() []panel {
	const reasons = "docs/reasons.md says what each reason is, who acts and what to do."
	return []panel{
		{
			"How many devices are well?", "timeseries", "none", `sum by (state) (accelerator_health_state` + onDevices + `)`,
			"{{state}}", "Devices and their partitions by health.", 8,
		},
		{
			"How many devices are free?", "timeseries", "none", `sum(accelerator_up` + onDevices +
				`) - (count(count by (instance, accelerator_id) (accelerator_allocation_info` + onDevices + `)) or vector(0))`,
			"free", "Devices that can be used and that no pod holds.", 8,
		},
		{
			"How busy are the devices?", "timeseries", "percentunit", `avg by (instance) (accelerator_utilization_ratio` +
				onDevices + `)`, "{{instance}}", "The mean of each node's devices, of those that say it.", 8,
		},
		{
			"Which devices are sick, and why?", "table", "none", `accelerator_health_reason` + onDevices + ` == 1`, "",
			reasons, 12,
		},
		{
			"Who has to do what about a device?", "table", "none", `accelerator_required_action` + onDevices + ` == 1`, "",
			"What makes the device well again: a reset and a restart happen by themselves where they may; the rest needs somebody.",
			12,
		},
		{
			"Which kinds are blocked, and why?", "table", "none", `acceld_blocked` + onNodes + ` == 1`, "", reasons, 8,
		},
		{
			"Which nodes are not ready, and where do they stand?", "table", "none", `acceld_kind_state{instance=~"$node", state!~"ready|absent"} == 1`,
			"", "docs/states.md says what each state means, and what leads out of it.", 8,
		},
		{
			"Which agents do not answer?", "table", "none", `up{job=~".*acceld.*", job!~".*acceld-controller.*"} == 0`, "",
			"Pods there keep their devices. No fault is noticed, and no new pod gets a device.", 8,
		},
		{"Who holds which device?", "table", "none", `accelerator_allocation_info` + onDevices, "", "", 12},
		{
			"Who holds devices and does not use them?", "table", "none", `accelerator_allocation_info` + onDevices +
				` and on (instance, accelerator_id) max_over_time(accelerator_utilization_ratio` + onDevices + `[2h]) < 0.01`, "",
			"Nothing was computed there in two hours. A device that does not say how busy it is, is not among them.", 12,
		},
		{
			"Which upgrades wait, and for what?", "table", "none", `acceld_upgrade{instance=~"$node", reason!=""} == 1`, "",
			"Drivers that are to be replaced by another one. `acceld status` on the node names who uses the old one.", 12,
		},
		{
			"Which nodes would lose their devices at the next reboot?", "table", "none", `acceld_next_kernel_ready` + onNodes +
				` == 0`, "", "A newer kernel is installed there, and no driver is ready for it. `acceld driver preflight` says why.", 12,
		},
	}
}
