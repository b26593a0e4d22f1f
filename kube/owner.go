package kube

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// claims says who owns the labels, annotations or capacities of a node.
type claims struct{ own, foreign map[string]bool }

// labelClaims, annotationClaims and capacityClaims read the node's managed fields. Entries that cannot be parsed claim
// nothing.
func labelClaims(node *corev1.Node) claims { return readClaims(node, "f:metadata", "f:labels") }

func annotationClaims(node *corev1.Node) claims {
	return readClaims(node, "f:metadata", "f:annotations")
}
func capacityClaims(node *corev1.Node) claims { return readClaims(node, "f:status", "f:capacity") }

func readClaims(node *corev1.Node, object, part string) claims {
	c := claims{map[string]bool{}, map[string]bool{}}
	for _, entry := range node.ManagedFields {
		if entry.FieldsV1 == nil {
			continue
		}
		var objects, parts, keys map[string]json.RawMessage
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &objects) != nil ||
			json.Unmarshal(objects[object], &parts) != nil || json.Unmarshal(parts[part], &keys) != nil {
			continue
		}
		owners := c.foreign
		if entry.Manager == FieldManager {
			owners = c.own
		}
		for f := range keys {
			if key, ok := strings.CutPrefix(f, "f:"); ok {
				owners[key] = true
			}
		}
	}
	return c
}

// mayChange reports whether acceld alone owns the label or annotation, which the node has.
func (c claims) mayChange(key string) bool { return c.own[key] && !c.foreign[key] }

// Left returns the labels of a node that only agents have written, including the labels that others may write too.
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
