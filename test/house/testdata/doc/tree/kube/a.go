// Package kube is documented here.
package kube
