// Package vm is the test bed: real kernels, real PCI devices, a real container runtime and a real Kubernetes, with
// nothing mocked but the silicon. It may be used by tests only; package bed is the same without package testing.
package vm
