// Package replica is one process of the controller. It reads the configuration, stands for election, serves what
// every replica serves, and as the leader runs the tasks that only one replica may run. The answers to the scheduler
// and the decisions of policies are made in its siblings.
package replica
