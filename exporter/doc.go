// Package exporter serves Prometheus, curl and people: it renders the newest accel.Machine as metrics, health texts,
// JSON and a status page. It serves from the snapshot only, so a scrape never touches a driver. It may not change
// anything, and accepts no writes. Every metric is a row of a table (see [Table]), and a value that is not known is
// an absent series, never a zero.
package exporter
