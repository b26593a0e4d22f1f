// Package kinds holds the built-in definitions to machines that have the hardware: what is detected, what is true of
// the driver, what is read, and which CDI spec containers get. It runs nothing and needs no accelerator.
package kinds
