// Package driver is documented here.
package driver
