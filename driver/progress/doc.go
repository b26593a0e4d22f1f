// Package progress reports the progress of the work on a driver, stage by stage. It decides nothing and keeps
// nothing.
package progress
