// Package source is where drivers come from: a table of sources, asked in order, with one file and one row for each.
// A source answers satisfied, with a plan that is judged and ready to load, or unavailable, refused, failed or
// waiting. Only unavailable falls through to the next source: a bad signature must not degrade into a build. A
// fetched driver goes into the store before it is used, and a built one may be published. This package loads nothing.
//
// A new source is a constant and a row in accel/source.go, a file here, and its row in rows.go.
package source
