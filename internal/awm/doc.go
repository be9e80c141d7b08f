// Package awm is the workload modeler: real TCP clients and servers that load
// a host with the workloads of the published studies (request-response,
// connect-request-response, streams, FTP transfers, and connections that turn
// from one into another), check every byte, and report what it cost.
//
// It decides what is sent and when, and touches sockets of its own only: it
// sets no interface, route, timer or sysctl, loads no BPF, and runs between
// any two hosts. Building hosts is lab's work, comparing runs is bench's.
//
// Each class of a mix runs on operating-system threads of its own, on both
// hosts. That is how CPU time is split between classes: the kernel counts it
// per thread (RUSAGE_THREAD), never per connection. What the kernel spends on
// a packet outside these threads (softirq on another thread's time, a queue's
// own thread) is in the per-CPU busy time instead, which cannot be split.
//
// The threads poll with epoll and system calls that do not go through Go's
// network poller, and allocate nothing per transaction. Run and Serve raise
// GOMAXPROCS while they have threads, so that only the kernel's scheduler
// decides which of them runs. Linux 5.11 or newer (epoll_pwait2).
package awm
