// A test is not the place for it.
package driver
