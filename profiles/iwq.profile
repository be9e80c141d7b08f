; Inbound workload queueing for one device and both IP versions: what
; "xlane run eth0" does without a file.
INTERFACE ETH0V4 DEFINE IPAQENET
  PORTNAME eth0
  INBPERF DYNAMIC WORKLOADQ
  VMAC  ; the device's own address
INTERFACE ETH0V6 DEFINE IPAQENET6
  PORTNAME eth0
  INBPERF DYNAMIC WORKLOADQ
  VMAC
START ETH0V4
START ETH0V6
