// Package certificate keeps the certificates by which the controller and the scheduler know each other in a Secret: it
// makes them where there are none, renews the controller's before it ends, and follows those that somebody else keeps
// there. It may read and change that one Secret and nothing else.
package certificate
