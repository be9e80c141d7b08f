; Optimized latency mode: the primary queue is polled busily, bulk never is.
INTERFACE ETH0 DEFINE IPAQENET
  PORTNAME eth0
  VMAC
  INBPERF DYNAMIC WORKLOADQ
  OLM
  CPUS 0-1  ; xlane's own operand: the CPUs that may deliver the queues
START ETH0
