// Package ko makes what tests of drivers need: kernel module files for a kernel that nobody runs, keys and certificates
// to sign them with, and a small definition. It is for tests alone, and the modules cannot be loaded.
package ko
