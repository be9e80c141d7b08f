; One device, managed as it is: no sorting, balanced timers.
INTERFACE ETH0 DEFINE IPAQENET PORTNAME eth0
START ETH0
