// Package e2e has tests only.
package e2e_test
