package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/probe"
)

// programDivider divides a device by the probe program of its kind; see driver.Divider. A value is like "half=2",
// and empty for a whole device.
type programDivider struct {
	programs     *probe.Supervisor
	kind, device string
}

func (d programDivider) Value(context.Context) (string, error) {
	parts, err := d.programs.Parts(d.kind, d.device)
	return partsText(parts), err
}

func (d programDivider) Divide(ctx context.Context, value string) error {
	parts, err := partsOf(value)
	if err != nil {
		return err
	}
	return d.programs.Divide(ctx, d.kind, d.device, parts)
}

func partsText(parts map[string]int) string {
	var words []string
	for _, profile := range slices.Sorted(maps.Keys(parts)) {
		words = append(words, fmt.Sprintf("%s=%d", profile, parts[profile]))
	}
	return strings.Join(words, ",")
}

func partsOf(value string) (map[string]int, error) {
	parts := map[string]int{}
	if value == "" {
		return parts, nil
	}
	for word := range strings.SplitSeq(value, ",") {
		profile, count, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(count)
		if err != nil || profile == "" || n < 1 {
			return nil, fmt.Errorf("%.80q does not say how a device is divided", value)
		}
		parts[profile] = n
	}
	return parts, nil
}
