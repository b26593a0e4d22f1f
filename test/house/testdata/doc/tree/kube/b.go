// Package kube is documented there too.
package kube
