// Package repair resets devices by itself whose health asks for it, where the definition says so. It resets one device
// at a time, never one that somebody has, and never more often than allowed: each reset is written down before it
// begins, in the device's history, so that neither a restart nor a crash begins the count again. If most devices of a
// kind are ill at once, the cause is hardly the devices, and it resets none. It makes no health decisions.
package repair
