// Package replica is one process of the controller: it reads the configuration, stands for election, serves what every
// replica serves, and does as the leader what one replica alone may do. What the scheduler is answered, and what
// policies come to, is decided in its siblings.
package replica
