// Package cxi makes and removes the services of jobs on a node's Slingshot cards.
//
// A service is what the driver of a Cassini card asks for before a process may use the
// card without the kernel. It names who may (the user of the job), the VNIs that the
// card stamps on the messages, the traffic classes, and how many of the card's resources
// are reserved and how many there can be at most. A job has one service on each card of
// its nodes. The card itself then keeps jobs apart. While a process of the job has the
// card open, its service is busy and cannot be destroyed.
//
// Only root makes services. The package reaches the driver through HPE's libcxi, which
// [Open] loads at run time, as libvirt is loaded: nodes without Slingshot have no libcxi.
// libcxi.h declares the few functions and layouts that are used.
//
// A service's member and VNIs alone decide whose it is, never what this package remembers:
// services outlive every process, and a crash can come at any moment.
//
// What a job's service is to have (newService), what is asked for after the card has
// refused, which services are strays ([Stray]), and what programs see ([Environment]) are
// pure. Only a [Library] touches cards.
package cxi
