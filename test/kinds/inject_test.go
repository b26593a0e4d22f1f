package kinds

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/machines"
)

// change is what happens to the attributes of a device, by file below its directory in sysfs or absolute: the new
// content, or one of the words below.
type change map[string]string

const (
	vanishes  = "\x00vanishes"  // the file or directory is not there any more
	directory = "\x00directory" // what should be a file cannot be read
)

func (c change) make(t *testing.T, h *host.Host, id string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(c)) {
		p := name
		if !filepath.IsAbs(p) {
			p = "/sys/bus/pci/devices/" + id + "/" + name
		}
		real, err := h.Path(p)
		if err != nil {
			t.Fatal(err)
		}
		switch c[name] {
		case vanishes:
			if _, err = os.Stat(real); err == nil {
				err = os.RemoveAll(real)
			}
		case directory:
			if err = os.RemoveAll(real); err == nil {
				err = os.Mkdir(real, 0o755)
			}
		default:
			if err = os.MkdirAll(filepath.Dir(real), 0o755); err == nil {
				err = os.WriteFile(real, []byte(c[name]), 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestInjections changes one device of a machine as errors do. Differences is what that changes in what is read of it:
// "+name=value" for a metric that is new or another one, "-name" for one that is not there any more; of the health,
// state, message and action; of partitions, how many there are.
func TestInjections(t *testing.T) {
	const instinct, radeon, arc, gaudi = "0000:0c:00.0", "0000:03:00.0", "0000:83:00.0", "0000:19:00.0"
	for _, c := range []struct {
		name, machine, kind, id string
		change                  change
		want                    []string
	}{
		{
			"errors of the memory", "amd-parts", "amd-gpu", instinct,
			change{"ras/umc_err_count": "ue: 2\nce: 41\nde: 2\n"},
			[]string{
				"+accelerator_ecc_corrected_errors_total=41", "+accelerator_ecc_uncorrected_errors_total=2",
			},
		},
		{
			"a page more is bad", "amd-parts", "amd-gpu", "0000:22:00.0",
			change{"ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : F\n"},
			[]string{"+accelerator_retired_pages=1"},
		},
		{
			"an older driver counts no deferred ones", "amd-parts", "amd-gpu", instinct,
			change{"ras/umc_err_count": "ue: 1\nce: 40\n"},
			[]string{"-accelerator_ecc_deferred_errors_total"},
		},
		{"no RAS at all", "amd-parts", "amd-gpu", instinct, change{"ras": vanishes}, []string{
			"-accelerator_ecc_corrected_errors_total", "-accelerator_ecc_deferred_errors_total",
			"-accelerator_ecc_uncorrected_errors_total", "-accelerator_retired_pages",
		}},
		{"hwmon vanished", "amd-radeon", "amd-gpu", radeon, change{"hwmon": vanishes}, []string{
			"-accelerator_fan_rpm", "-accelerator_hotspot_temperature_celsius", "-accelerator_memory_clock_hertz",
			"-accelerator_memory_temperature_celsius",
			"-accelerator_memory_temperature_critical_celsius", "-accelerator_power_limit_watts",
			"-accelerator_power_usage_watts", "-accelerator_sm_clock_hertz",
			"-accelerator_temperature_celsius", "-accelerator_temperature_critical_celsius",
			"-accelerator_voltage_volts",
		}},
		{
			"one sensor cannot be read", "amd-radeon", "amd-gpu", radeon,
			change{"hwmon/hwmon3/temp1_input": directory},
			[]string{"-accelerator_temperature_celsius"},
		},
		{"one sensor is not there", "amd-radeon", "amd-gpu", radeon, change{
			"hwmon/hwmon3/temp1_input": vanishes,
			"hwmon/hwmon3/temp1_crit":  vanishes,
		}, []string{
			"+accelerator_temperature_celsius=111", "+accelerator_temperature_critical_celsius=110",
		}},
		{"nonsense for a number", "amd-radeon", "amd-gpu", radeon, change{
			"gpu_busy_percent":   "N/A\n",
			"mem_info_vram_used": "\xff\x00", "hwmon/hwmon3/power1_average": "1e999",
		}, []string{
			"-accelerator_gpu_utilization", "-accelerator_memory_used_bytes", "-accelerator_power_usage_watts",
			"-accelerator_utilization_ratio",
		}},
		{"nonsense for a name", "amd-parts", "amd-gpu", instinct, change{
			"product_name":  "\x01\x02",
			"serial_number": "\n",
		}, []string{"model ", "serial 8fe4c1a0d2b35e71"}},
		{
			"another number of hwmon", "amd-radeon", "amd-gpu", radeon,
			change{"hwmon/hwmon3": vanishes, "hwmon/hwmon12/temp1_input": "50000\n"},
			[]string{
				"+accelerator_temperature_celsius=50", "-accelerator_fan_rpm",
				"-accelerator_hotspot_temperature_celsius", "-accelerator_memory_clock_hertz",
				"-accelerator_memory_temperature_celsius",
				"-accelerator_memory_temperature_critical_celsius", "-accelerator_power_limit_watts",
				"-accelerator_power_usage_watts", "-accelerator_sm_clock_hertz",
				"-accelerator_temperature_critical_celsius", "-accelerator_voltage_volts",
			},
		},
		{"it falls asleep", "amd-radeon", "amd-gpu", radeon, change{
			"power/runtime_status": "suspended\n",
			"power_state":          "D3cold\n",
		}, []string{
			"+accelerator_pci_power_state=4", "-accelerator_fan_rpm", "-accelerator_gpu_utilization",
			"-accelerator_hotspot_temperature_celsius", "-accelerator_memory_clock_hertz",
			"-accelerator_memory_temperature_celsius", "-accelerator_memory_temperature_critical_celsius",
			"-accelerator_memory_total_bytes", "-accelerator_memory_used_bytes",
			"-accelerator_memory_utilization_ratio", "-accelerator_pcie_replays_total",
			"-accelerator_power_limit_watts", "-accelerator_power_usage_watts", "-accelerator_sm_clock_hertz",
			"-accelerator_temperature_celsius", "-accelerator_temperature_critical_celsius",
			"-accelerator_utilization_ratio", "-accelerator_voltage_volts",
		}},
		{
			"its power state is not known", "amd-radeon", "amd-gpu", radeon,
			change{"power_state": "unknown\n"},
			[]string{"-accelerator_pci_power_state"},
		},
		{
			"it is made whole", "amd-parts", "amd-gpu", instinct,
			change{"current_compute_partition": "SPX\n"},
			[]string{"0 partitions"},
		},
		{
			"its mode cannot be read", "amd-parts", "amd-gpu", instinct,
			change{"current_compute_partition": directory},
			[]string{"0 partitions"},
		},
		{
			"it is being divided", "amd-parts", "amd-gpu", instinct,
			change{"current_compute_partition": "\n"},
			[]string{"0 partitions"},
		},
		{
			"a part has not come", "amd-parts", "amd-gpu", instinct,
			change{"/sys/class/kfd/kfd/topology/nodes/9": vanishes},
			[]string{"7 partitions"},
		},
		{
			"a part without a render node", "amd-parts", "amd-gpu", instinct,
			change{"/dev/dri/renderD135": vanishes},
			[]string{"8 partitions, 7 usable"},
		},
		{
			"the compute interface says nothing", "amd-parts", "amd-gpu", instinct,
			change{"/sys/class/kfd/kfd/topology": vanishes},
			[]string{"0 partitions"},
		},

		{
			"its firmware was written again", "intel-parts", "intel-gpu-xe", arc,
			change{"survivability_mode": vanishes},
			[]string{"healthy:  ()"},
		},
		{
			"it throttles", "intel-parts", "intel-gpu-xe", arc,
			change{"tile0/gt1/freq0/throttle/status": "1\n"},
			[]string{"+accelerator_throttled=1"},
		},
		{
			"one of its parts does not say whether it does", "intel-parts", "intel-gpu-xe", arc,
			change{"tile0/gt1/freq0/throttle/status": directory},
			[]string{"-accelerator_throttled"},
		},
		{
			"a part of it is gone", "intel-parts", "intel-gpu-xe", arc,
			change{"tile0/gt0": vanishes},
			[]string{"-accelerator_idle_seconds_total"},
		},
		{
			"a virtual function loses its driver", "intel-parts", "intel-gpu-xe", "0000:03:00.0",
			change{"/sys/devices/pci0000:00/0000:03:00.1/drm": vanishes},
			[]string{"0 partitions"},
		},

		{
			"it is in reset", "gaudi", "habana-gaudi", gaudi,
			change{"status": "In reset\n"},
			[]string{"unhealthy: it is being reset ()"},
		},
		{
			"it is started", "gaudi", "habana-gaudi", gaudi,
			change{"status": "In device creation\n"},
			[]string{"unhealthy: it is being started ()"},
		},
		{
			"it wants a reset", "gaudi", "habana-gaudi", gaudi,
			change{"status": "Needs reset\n"},
			[]string{"unhealthy: it has to be reset (ResetDevice)"},
		},
		{
			"the word of its documentation", "gaudi", "habana-gaudi", gaudi,
			change{"status": "Malfunction\n"},
			[]string{"unhealthy: the driver has given it up (Reboot)"},
		},
		{
			"a word that nobody knows", "gaudi", "habana-gaudi", gaudi,
			change{"status": "On fire\x1b[31m\n"},
			[]string{"unhealthy: On fire [31m ()"},
		},
		{"its status cannot be read", "gaudi", "habana-gaudi", gaudi, change{"status": directory}, []string{":  ()"}},
		{"its status is not there", "gaudi", "habana-gaudi", gaudi, change{"status": vanishes}, []string{":  ()"}},

		{
			"it uses more memory, and sleeps", "intel-npu", "intel-npu", "0000:00:0b.0",
			change{"npu_memory_utilization": "137363456\n", "npu_current_frequency_mhz": "0\n"},
			[]string{"+accelerator_memory_used_bytes=137363456", "+accelerator_sm_clock_hertz=0"},
		},
		{
			"an older driver without these files", "intel-npu", "intel-npu", "0000:00:0b.0",
			change{"npu_memory_utilization": vanishes, "npu_current_frequency_mhz": vanishes},
			[]string{"-accelerator_memory_used_bytes", "-accelerator_sm_clock_hertz"},
		},
		{
			"the driver of the kernel has no sensors", "amd-npu", "amd-npu", "0000:c5:00.1",
			change{"hwmon": vanishes},
			[]string{"-accelerator_power_usage_watts", "-accelerator_temperature_celsius"},
		},
		{
			"an error of each sort", "qualcomm", "qualcomm-aic100", "0000:3b:00.0",
			change{"ce_count": "13\n", "ue_count": "2\n", "ue_nonfatal_count": "3\n"},
			[]string{"+accelerator_errors_total=18"},
		},
		{
			"its firmware has started", "qualcomm", "qualcomm-aic100", "0000:3c:00.0",
			change{"ce_count": "0\n", "ue_count": "0\n", "ue_nonfatal_count": "0\n"},
			[]string{"+accelerator_errors_total=0"},
		},
		{
			"its firmware tells nothing", "tenstorrent", "tenstorrent-tensix", "0000:41:00.0",
			change{
				"tenstorrent/tenstorrent!1/tt_aiclk": vanishes, "tenstorrent/tenstorrent!1/tt_card_type": vanishes,
				"tenstorrent/tenstorrent!1/tt_serial": vanishes,
			},
			[]string{"-accelerator_sm_clock_hertz", "model ", "serial "},
		},
		{
			"a compute unit hangs", "alveo", "amd-alveo", "0000:af:00.1",
			change{"device_bad_state": "1\n"},
			[]string{"unhealthy: a compute unit did not end its work (xrt-smi reset) (Service)"},
		},
		{
			"the other function has no driver", "alveo", "amd-alveo", "0000:af:00.1",
			change{"ready": "0x0\n"},
			[]string{"unhealthy: the function for the administrator does not answer ()"},
		},
		{
			"it is back after a reset", "alveo", "amd-alveo", "0000:d8:00.1",
			change{"dev_offline": "0\n", "ready": "0x1\n"},
			[]string{"healthy:  ()"},
		},

		{
			"the bus reads as ff", "gaudi", "habana-gaudi", gaudi,
			change{"config": strings.Repeat("\xff", 64)},
			[]string{"unhealthy: it does not answer on the bus any more (Reboot)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := machines.Unpack(t, c.machine)
			def := definitions(t)[c.kind]
			before := reading(t, h, def, c.id)
			c.change.make(t, h, c.id)
			after := reading(t, h, def, c.id)
			if diff := cmp.Diff(c.want, differences(before, after)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// reading is one device as it is now.
func reading(t *testing.T, h *host.Host, def *accel.Definition, id string) accel.Accelerator {
	t.Helper()
	pci, _ := detect.PCI(h)
	all := detect.Accelerators(h, def, pci)
	i := slices.IndexFunc(all, func(a accel.Accelerator) bool { return a.ID == id })
	if i < 0 {
		t.Fatalf("no device %s in %+v", id, all)
	}
	metrics, err := detect.Collect(h, def, all[i])
	if err != nil {
		t.Error(err)
	}
	all[i].Metrics = metrics
	return all[i]
}

func differences(before, after accel.Accelerator) []string {
	var out []string
	for name, v := range after.Metrics {
		if old, known := before.Metrics[name]; !known || old != v {
			out = append(out, "+"+name+"="+sprint(v))
		}
	}
	for name := range before.Metrics {
		if _, known := after.Metrics[name]; !known {
			out = append(out, "-"+name)
		}
	}
	slices.Sort(out)
	if x, y := before.Health, after.Health; x != y {
		out = append(out, string(y.State)+": "+y.Message+" ("+string(y.Action)+")")
	}
	if before.Model != after.Model {
		out = append(out, "model "+after.Model)
	}
	if before.Serial != after.Serial {
		out = append(out, "serial "+after.Serial)
	}
	if x, y := parts(before), parts(after); x != y {
		out = append(out, y)
	}
	return out
}

func parts(a accel.Accelerator) string {
	text := sprint(float64(len(a.Partitions))) + " partitions"
	usable := 0
	for _, p := range a.Partitions {
		if p.Health.State == "" {
			usable++
		}
	}
	if usable < len(a.Partitions) {
		text += ", " + sprint(float64(usable)) + " usable"
	}
	return text
}
