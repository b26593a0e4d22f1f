// Package source is where drivers come from: a table of sources, one file and one row for each, asked in order. A
// source answers satisfied, with a plan that is judged and ready to be loaded, or unavailable, refused, failed or
// waiting. Only unavailable falls through to the next one: a bad signature must not degrade into a build. What is got
// goes into the store before it is used; what is built may be published. Nothing is loaded here.
//
// A new source is a constant and a row in accel/source.go, a file here, and its row in rows.go.
package source
