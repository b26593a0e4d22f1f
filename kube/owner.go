package kube

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// claims tells who owns a label of the node.
type claims struct{ own, foreign map[string]bool }

// labelClaims reads the node's managed fields. What cannot be parsed claims nothing.
func labelClaims(node *corev1.Node) claims {
	c := claims{map[string]bool{}, map[string]bool{}}
	for _, entry := range node.ManagedFields {
		if entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		owners := c.foreign
		if entry.Manager == FieldManager {
			owners = c.own
		}
		for f := range fields.Metadata.Labels {
			if key, ok := strings.CutPrefix(f, "f:"); ok {
				owners[key] = true
			}
		}
	}
	return c
}

// mayChange reports whether the label, which the node has, is acceld's alone.
func (c claims) mayChange(key string) bool { return c.own[key] && !c.foreign[key] }

// Left returns the labels of a node that agents have written and nobody else has, those that others may write too included.
func Left(node *corev1.Node) []string {
	var keys []string
	owners := labelClaims(node)
	for key := range node.Labels {
		if ours(key) || shared(key) && owners.mayChange(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
