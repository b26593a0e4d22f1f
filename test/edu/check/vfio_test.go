package main

import (
	"errors"
	"slices"
	"testing"
)

func TestVFIOAddresses(t *testing.T) {
	got := vfioAddresses([]string{"PATH=/bin", "ACCELD_VFIO_0000_02_00_0=0000:02:00.0", "ACCELD_VFIO_0000_01_00_0=0000:01:00.0"})
	if !slices.Equal(got, []string{"0000:01:00.0", "0000:02:00.0"}) {
		t.Error(got)
	}
	read := func(file string) ([]byte, error) {
		switch file {
		case "a":
			return []byte(`{"apiVersion":"metadata.resource.k8s.io/v1beta1","requests":[{"name":"r","devices":[{"attributes":{"resource.kubernetes.io/pciBusID":{"string":"0000:01:00.0"}}}]}]}
{"apiVersion":"metadata.resource.k8s.io/v1alpha1"}`), nil
		case "b":
			return []byte(`{"apiVersion":"v1"}`), nil
		}
		return nil, errors.New("no such file")
	}
	if got, err := metadataAddresses([]string{"a", "a"}, read); err != nil || !slices.Equal(got, []string{"0000:01:00.0"}) {
		t.Error(got, err)
	}
	for _, file := range []string{"b", "c"} {
		if got, err := metadataAddresses([]string{file}, read); err == nil {
			t.Error(file, got)
		}
	}
}

// TestComputeVFIO: registers that are plain memory hold what was written, which is not 10!.
func TestComputeVFIO(t *testing.T) {
	registers := make([]byte, 4096)
	if err := computeVFIO(registers[:8]); err == nil {
		t.Error("no registers")
	}
	if err := computeVFIO(registers); err == nil {
		t.Error("no device")
	}
	*register(registers, atIdent) = 0x010000ed
	if err := computeVFIO(registers); err == nil || err.Error() != "10! is 10" {
		t.Error(err)
	}
}
