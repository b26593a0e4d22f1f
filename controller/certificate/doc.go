// Package certificate keeps the certificates with which the controller and the scheduler authenticate each other in a
// Secret. It creates them if there are none, renews the controller's before it expires, and follows those that
// somebody else maintains there. It may read and change only that Secret.
package certificate
