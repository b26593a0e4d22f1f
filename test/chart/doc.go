// Package chart renders the Helm chart with Helm's own library and holds it to the plain manifests, object by object.
// It is a module of its own, so that no program has Helm in it.
package chart
