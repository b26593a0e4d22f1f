// Package progress tells how far the work on a driver is, stage by stage. It decides nothing and keeps nothing.
package progress
