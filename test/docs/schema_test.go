package docs

import "testing"

// TestEveryFieldIsDescribed: what people write is described by the comments of its fields, which schemas and kubectl
// explain show.
func TestEveryFieldIsDescribed(t *testing.T) {
	for _, field := range Undescribed(root) {
		t.Errorf("%s has no comment", field)
	}
}

// TestExplain: kubectl explain describes every field of the cluster's objects.
func TestExplain(t *testing.T) {
	fields, err := undescribedInCluster(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fields {
		t.Errorf("%s has no comment", field)
	}
}
