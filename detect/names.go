package detect

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Names fills VendorName and DeviceName of devices from the PCI ID database, in one pass that keeps only the names of
// present devices. A machine without the database is not a problem: the names stay empty.
func Names(h *host.Host, devices []accel.PCIDevice) []string {
	if len(devices) == 0 {
		return nil
	}
	for _, name := range pciIDs() {
		f, err := h.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = scanNames(f, devices)
			_ = f.Close() // read only
		}
		if err != nil {
			return []string{fmt.Sprintf("cannot read PCI names: %v", err)}
		}
		return nil
	}
	return nil
}

// scanNames parses the database: "vvvv  Vendor", "\tdddd  Device", "\t\t…" for subsystems, then "C cc  Class" up to
// the end.
func scanNames(f io.Reader, devices []accel.PCIDevice) error {
	vendors, ids := map[string][]int{}, map[string][]int{}
	for i, d := range devices {
		vendors[d.Vendor] = append(vendors[d.Vendor], i)
		ids[d.Vendor+d.Device] = append(ids[d.Vendor+d.Device], i)
	}
	const limit = 16 << 20 // the database has 1.4 MB (2026)
	in := bufio.NewReaderSize(io.LimitReader(f, limit), 64<<10)
	var key [8]byte // vendor and device
	here := false   // within a vendor that is present
	for len(ids) > 0 {
		line, err := in.ReadSlice('\n')
		if err == io.EOF || len(line) > 2 && line[0] == 'C' && line[1] == ' ' {
			return nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue // garbage; the rest is read as lines again
		}
		if err != nil {
			return err
		}
		switch {
		case len(line) < 7 || line[0] == '#' || here && line[1] == '\t' || !here && line[0] == '\t':
		case line[0] != '\t':
			copy(key[:4], line[:4])
			var present []int
			if present, here = vendors[string(key[:4])]; here {
				name := strings.TrimSpace(string(line[4:]))
				for _, i := range present {
					devices[i].VendorName = name
				}
			}
		default:
			copy(key[4:], line[1:5])
			if present, ok := ids[string(key[:])]; ok {
				name := strings.TrimSpace(string(line[5:]))
				for _, i := range present {
					devices[i].DeviceName = name
				}
				delete(ids, string(key[:]))
			}
		}
	}
	return nil
}
