package loop

import (
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestOffersOtherwise: the plugin is replaced when the devices are shared differently, and only then.
func TestOffersOtherwise(t *testing.T) {
	shared := func(replicas int) *accel.Definition {
		return &accel.Definition{Kind: "a-b", Resource: "a/b", Sharing: &accel.Sharing{
			Replicas: replicas,
			Rename:   true,
		}}
	}
	if !offersOtherwise(shared(4), shared(8)) {
		t.Error("the plugin stays where the devices are shared otherwise")
	}
	if offersOtherwise(shared(4), shared(4)) {
		t.Error("the plugin goes where nothing has changed")
	}
}
