package main

import (
	"slices"
	"strconv"
	"strings"
)

// labels returns the labels that GPU Feature Discovery writes (its README in NVIDIA/k8s-device-plugin, v0.18), as far
// as NVML has the facts. Labels that depend on how devices are shared, and the timestamp, are left out.
func (w *watch) labels() map[string]string {
	l := labels{}
	i := slices.IndexFunc(w.devices, func(d *device) bool { return d.known && d.facts.model != "" })
	if i < 0 {
		return nil
	}
	f := w.devices[i].facts
	l.set("gpu.present", "true")
	l.set("gpu.count", strconv.Itoa(len(w.devices)))
	l.set("gpu.product", strings.ReplaceAll(f.model, " ", "-"))
	l.set("gpu.machine", strings.ReplaceAll(w.files.machine(), " ", "-"))
	if f.memoryMiB > 0 {
		l.set("gpu.memory", strconv.FormatUint(f.memoryMiB, 10))
	}
	l.set("gpu.mode", map[bool]string{true: "graphics", false: "compute"}[f.graphicsClass])
	if f.major > 0 {
		l.set("gpu.family", family(f.major, f.minor))
		l.set("gpu.compute.major", strconv.Itoa(f.major))
		l.set("gpu.compute.minor", strconv.Itoa(f.minor))
	}
	l.driver(f.driver)
	if f.cuda > 0 {
		l.cuda(f.cuda)
	}
	l.instances(w.devices)
	return l
}

// labels are labels in NVIDIA's domain; empty ones are left out.
type labels map[string]string

func (l labels) set(name, value string) {
	if value != "" {
		l["nvidia.com/"+name] = value
	}
}

// driver sets the labels of the driver's version, such as "570.86.15", under their current and former names.
func (l labels) driver(version string) {
	parts := append(strings.SplitN(version, ".", 3), "", "", "")
	l.set("cuda.driver-version.full", version)
	for i, names := range [][]string{
		{"cuda.driver-version.major", "cuda.driver.major"},
		{"cuda.driver-version.minor", "cuda.driver.minor"},
		{"cuda.driver-version.revision", "cuda.driver.rev"},
	} {
		for _, name := range names {
			l.set(name, parts[i])
		}
	}
}

// cuda sets the labels of the newest CUDA version that the driver supports.
func (l labels) cuda(version int) {
	major, minor := strconv.Itoa(version/1000), strconv.Itoa(version%1000/10)
	l.set("cuda.runtime-version.full", major+"."+minor)
	for _, name := range []string{"cuda.runtime-version.", "cuda.runtime."} {
		l.set(name+"major", major)
		l.set(name+"minor", minor)
	}
}

// instances sets the labels of each profile, as in the strategy "mixed", which acceld's resources correspond to.
func (l labels) instances(devices []*device) {
	capable, parts := false, map[string]part{}
	for _, d := range devices {
		capable = capable || d.facts.canBeDivided
		for profile, p := range d.facts.parts {
			parts[profile] = part{parts[profile].count + p.count, p.attributes}
		}
	}
	l.set("mig.capable", strconv.FormatBool(capable))
	l.set("mig.strategy", "mixed")
	product := l["nvidia.com/gpu.product"]
	for profile, p := range parts {
		prefix, a := "mig-"+profile+".", p.attributes
		l.set(prefix+"count", strconv.Itoa(p.count))
		l.set(prefix+"product", product+"-MIG-"+profile)
		l.set(prefix+"memory", strconv.FormatUint(a.MemorySizeMB, 10))
		for name, n := range map[string]uint32{
			"multiprocessors": a.MultiprocessorCount, "slices.gi": a.GpuInstanceSliceCount,
			"slices.ci":    a.ComputeInstanceSliceCount,
			"engines.copy": a.SharedCopyEngineCount, "engines.decoder": a.SharedDecoderCount,
			"engines.encoder": a.SharedEncoderCount,
			"engines.jpeg":    a.SharedJpegCount, "engines.ofa": a.SharedOfaCount,
		} {
			l.set(prefix+name, strconv.FormatUint(uint64(n), 10))
		}
	}
}

// family returns the name of an architecture by its compute capability.
func family(major, minor int) string {
	switch {
	case major == 7 && minor >= 5:
		return "turing"
	case major == 8 && minor >= 9:
		return "ada-lovelace"
	}
	return map[int]string{
		1: "tesla", 2: "fermi", 3: "kepler", 5: "maxwell", 6: "pascal", 7: "volta", 8: "ampere", 9: "hopper",
		10: "blackwell", 12: "blackwell",
	}[major]
}
