// Package trust says who signed something: an artifact, or the source tree of a driver. It reads the public keys and
// the authorities that somebody named, verifies signatures with them, and signs. It decides nothing about a driver;
// callers do, who know what was demanded.
package trust
