package accel

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// express returns the configuration space of a PCI Express function with these extended capabilities, one behind the
// other: the ID, then the words after the header.
func express(extended ...[]uint32) ConfigSpace {
	c := make(ConfigSpace, 4096)
	c[0x34], c[0x40], c[0x41], c[0x60] = 0x40, 0x01, 0x60, 0x10
	at := 0x100
	for i, words := range extended {
		next := at + 4*len(words)
		if i == len(extended)-1 {
			next = 0
		}
		binary.LittleEndian.PutUint32(c[at:], words[0]|1<<16|uint32(next)<<20)
		for n, w := range words[1:] {
			binary.LittleEndian.PutUint32(c[at+4*(n+1):], w)
		}
		at = next
	}
	return c
}

// TestACS: the controls are read from behind other capabilities, and are unknown when they could not be read.
func TestACS(t *testing.T) {
	redirecting := express([]uint32{0x0001, 0, 0}, []uint32{0x000d, 0x001d_005f})
	circle := express([]uint32{0x0001, 0}, []uint32{0x0002, 0})
	binary.LittleEndian.PutUint32(circle[0x108:], 0x0002|1<<16|0x100<<20)
	cut := express([]uint32{0x0001}, []uint32{0x000d, 0x001d_005f})
	conventional := make(ConfigSpace, 256)
	silent := express()
	for i := range silent[0x100:] {
		silent[0x100+i] = 0xff
	}
	loop := make(ConfigSpace, 4096)
	loop[0x34], loop[0x40], loop[0x41] = 0x40, 0x01, 0x40
	for what, c := range map[string]struct {
		config    ConfigSpace
		want      Answer[ACS]
		redirects bool
	}{
		"redirects":              {redirecting, Known(ACS(0x1d)), true},
		"off":                    {express([]uint32{0x000d, 0x0001_005f}), Known(ACS(1)), false},
		"none":                   {express([]uint32{0x0001, 0}), Known(ACS(0)), false},
		"no extended capability": {express(), Known(ACS(0)), false},
		"a circle":               {circle, Known(ACS(0)), false},
		"conventional":           {conventional, Known(ACS(0)), false},
		"only the header":        {redirecting[:64], Answer[ACS]{}, false},
		"not the extended space": {redirecting[:256], Answer[ACS]{}, false},
		"cut inside":             {cut[:0x108], Answer[ACS]{}, false},
		"no answer":              {silent, Known(ACS(0)), false},
		"a list that stays":      {loop, Known(ACS(0)), false},
		"nothing":                {nil, Answer[ACS]{}, false},
	} {
		if got := c.config.ACS(); got != c.want || got.Value.Redirects() != c.redirects {
			t.Errorf("%s: %+v (%s), want %+v", what, got, got.Value, c.want)
		}
	}
	if got := ACS(0x1d).String(); got != "SrcValid ReqRedir CmpltRedir UpstreamFwd" {
		t.Error(got)
	}
}

// TestResizableBARs: size and largest size of each register, whatever the device claims about their number.
func TestResizableBARs(t *testing.T) {
	two := express([]uint32{0x000d, 0}, []uint32{
		0x0015, 1<<12 | 1<<19, 2<<5 | 8<<8, 1 << 4, 4,
	})
	if diff := cmp.Diff([]BAR{
		{Index: 0, Size: 256 << 20, Largest: 32 << 30}, {Index: 4, Size: 1 << 20, Largest: 1 << 20},
	}, two.ResizableBARs()); diff != "" {
		t.Error(diff)
	}
	strange := express([]uint32{0x0015, 1 << 31, 7<<5 | 63<<8, 1 << 4, 7, 1 << 4, 1, 1 << 4, 1})
	if diff := cmp.Diff([]BAR{{Index: 1, Size: 1 << 20, Largest: 1 << 20}}, strange.ResizableBARs()); diff != "" {
		t.Error(diff)
	}
	for _, n := range []int{0x100, 0x104, 0x108} {
		if got := strange[:n].ResizableBARs(); got != nil {
			t.Errorf("%d bytes: %+v", n, got)
		}
	}
}

func FuzzConfigSpace(f *testing.F) {
	f.Add([]byte(express([]uint32{0x000d, 0x001d_005f}, []uint32{0x0015, 1 << 12, 1<<5 | 8<<8})))
	f.Add([]byte(express([]uint32{0x0001, 0}, []uint32{0x0002, 0})))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := ConfigSpace(b)
		if at, found := c.Capability(0x10); found && (at < 0x40 || at > 0xfc || c[at] != 0x10) {
			t.Errorf("capability at %#x", at)
		}
		if at, found := c.Extended(0x15); found && (at < 0x100 || at > 0xffc || uint16(c.Word(at)) != 0x15) {
			t.Errorf("extended capability at %#x", at)
		}
		if acs := c.ACS(); acs.Known && len(b) < 256 {
			t.Errorf("%+v of %d bytes", acs, len(b))
		}
		bars := c.ResizableBARs()
		if len(bars) > 6 {
			t.Errorf("%d registers", len(bars))
		}
		for _, bar := range bars {
			if bar.Index < 0 || bar.Index > 5 || bar.Size < 1<<20 || bar.Largest < 0 {
				t.Errorf("%+v", bar)
			}
		}
	})
}
