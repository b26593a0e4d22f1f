// This is the program.
package main
