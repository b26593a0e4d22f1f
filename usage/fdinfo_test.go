package usage

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// amdgpu, xe and i915 are what these drivers print (amdgpu_fdinfo.c, xe_drm_client.c, i915_drm_client.c).
const (
	head   = "pos:\t0\nflags:\t02100002\nmnt_id:\t24\nino:\t1234\n"
	amdgpu = head + `drm-driver:	amdgpu
drm-client-id:	17
drm-pdev:	0000:03:00.0
pasid:	32770
drm-total-cpu:	0
drm-total-gtt:	4096 KiB
drm-total-vram:	2048 KiB
drm-resident-gtt:	4096 KiB
drm-resident-vram:	1024 KiB
drm-memory-vram:	1024 KiB
amd-evicted-vram:	0 KiB
drm-engine-gfx:	46464671 ns
drm-engine-enc_1:	2 ns
`
	xe = head + `drm-driver:	xe
drm-client-id:	3
drm-pdev:	0000:03:00.0
drm-total-system:	0
drm-shared-system:	0
drm-total-vram0:	16 MiB
drm-resident-vram0:	15 MiB
drm-cycles-rcs:	200
drm-total-cycles-rcs:	1000
drm-engine-capacity-rcs:	2
drm-cycles-odd:	5
`
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		text, prefix string
		want         client
	}{
		"amdgpu": {amdgpu, "drm-", client{
			id: "17", device: "0000:03:00.0", engines: map[string]engine{"gfx": {46464671, 0, true}, "enc_1": {2, 0, true}},
			memory: map[string]uint64{"gtt": 4 << 20, "vram": 1 << 20},
		}},
		"xe": {xe, "drm-", client{
			id: "3", device: "0000:03:00.0", engines: map[string]engine{"rcs": {200, 1000, false}},
			memory: map[string]uint64{"vram0": 15 << 20},
		}},
		"totals alone": {"drm-client-id: 1\ndrm-total-memory: 3 KiB", "drm-", client{
			id: "1", engines: map[string]engine{}, memory: map[string]uint64{"memory": 3 << 10},
		}},
		"another prefix": {head + "edu-client-id:\t9\nedu-resident-device:\t64\nedu-engine-dma:\t200000000 ns\n", "edu-", client{
			id: "9", engines: map[string]engine{"dma": {200000000, 0, true}}, memory: map[string]uint64{"device": 64},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, told, err := parse(tc.text, tc.prefix)
			diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(client{}, engine{}))
			if diff != "" || !told || err != nil {
				t.Errorf("told %t, %v (-want +got):\n%s", told, err, diff)
			}
		})
	}
	if c, told, err := parse(amdgpu, "edu-"); told || err != nil || c.id != "" {
		t.Errorf("of another driver: %+v, %t, %v", c, told, err)
	}
}

// TestParseStrict: what cannot be read in full counts for nothing.
func TestParseStrict(t *testing.T) {
	many := ""
	for i := range accel.MaxEngines + 1 {
		many += "drm-engine-e" + string(rune('a'+i)) + ": 1 ns\n"
	}
	for _, text := range []string{
		"drm-engine-gfx: 1 ns",               // nobody's
		"drm-client-id: x",                   // no number
		"drm-client-id: 1\ndrm-client-id: 2", // two
		"drm-client-id: 1\ndrm-engine-gfx: 1 ns\ndrm-engine-gfx: 2 ns", // the same engine twice
		"drm-client-id: 1\ndrm-engine-gfx: 1 ms",                       // another unit
		"drm-client-id: 1\ndrm-engine-gfx: 1",                          // no unit
		"drm-client-id: 1\ndrm-engine-gfx: -1 ns",
		"drm-client-id: 1\ndrm-engine-gfx: 99999999999999999999 ns",
		"drm-client-id: 1\ndrm-engine-g x: 1 ns",
		"drm-client-id: 1\ndrm-resident-vram: 4611686018427387905",
		"drm-client-id: 1\ndrm-resident-vram: 9007199254740992 MiB", // more than 64 bits
		"drm-client-id: 1\ndrm-resident-vram: 1 TiB",
		"drm-client-id: 1\ndrm-resident-\x1b: 1",
		"drm-client-id: 1\ndrm-pdev: " + strings.Repeat("0", maxID+1),
		"drm-client-id: 1\n" + many,
		"drm-client-id: 1\n" + strings.Repeat("x: y\n", maxLines),
		"drm-client-id: 1\n" + strings.Repeat("x", maxInfo),
	} {
		if c, told, err := parse(text, "drm-"); err == nil || !told || c.id != "" {
			t.Errorf("%.80q: %+v, %t, %v", text, c, told, err)
		}
	}
}

// FuzzFdinfo: whatever a driver prints, what is kept of it is bounded, and can be shown and added.
func FuzzFdinfo(f *testing.F) {
	f.Add(amdgpu, "drm-")
	f.Add(xe, "drm-")
	f.Add("edu-client-id:\t9\nedu-resident-device:\t64\nedu-engine-dma:\t200000000 ns\n", "edu-")
	f.Add("drm-client-id: 18446744073709551615\ndrm-memory-: 1\ndrm-cycles-: 1\ndrm-total-cycles-: 0", "drm-")
	f.Fuzz(func(t *testing.T, text, prefix string) {
		c, told, err := parse(text, prefix)
		if err != nil || !told {
			if c.id != "" || len(c.engines) > 0 {
				t.Errorf("%+v, %t, %v", c, told, err)
			}
			return
		}
		if len(c.engines) > accel.MaxEngines || len(c.memory) > maxRegions || c.id == "" || len(c.device) > maxID {
			t.Errorf("%+v", c)
		}
		names := append(keysOf(c.engines), keysOf(c.memory)...)
		for _, name := range names {
			if !accel.UsageWord(name) {
				t.Errorf("%q", name)
			}
		}
		if sum := inDevice(c.memory, nil); sum > 1<<62 {
			t.Errorf("%d bytes", sum)
		}
	})
}

func keysOf[V any](m map[string]V) (all []string) {
	for k := range maps.Keys(m) {
		all = append(all, k)
	}
	return all
}
