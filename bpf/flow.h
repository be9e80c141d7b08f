/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* This file defines the key of a TCP connection and its hash. Addresses and
 * ports stay in network byte order. The key is written from the host's point
 * of view, whatever the direction of the packet: remote is the peer, local is
 * the host behind the adapter. IPv4 addresses sit in the low half of the
 * second word, the first word is then V4_MARK, so that no IPv6 address equals
 * an IPv4 one. It holds no maps. */
#ifndef XLANE_FLOW_H
#define XLANE_FLOW_H

#include <linux/types.h>

/* ffff::/16 is multicast with all flags set (RFC 4291 2.7), so no TCP
 * connection over IPv6 has an address that begins with these bytes. */
#define V4_MARK 0xffffffffffffffffULL

struct flow_key {
	__u64 remote[2];
	__u64 local[2];
	__be16 remote_port;
	__be16 local_port;
	__u16 vlan_outer; /* VLAN id in host order, 0 = untagged */
	__u16 vlan_inner;
};
_Static_assert(sizeof(struct flow_key) == 40, "the key has no padding");

/* flow_hash mixes the key with a secret seed so that an outsider cannot aim
 * many connections at one bucket. The multipliers are the 64-bit golden ratio
 * and two of the odd constants of the xxHash64 specification, chosen for
 * their bit dispersion. Never returns 0 or 1: those tags are reserved. */
static __always_inline __u64 flow_hash(const struct flow_key *k, __u64 seed0, __u64 seed1)
{
	__u64 ports = ((__u64)k->remote_port << 48) | ((__u64)k->local_port << 32) |
		      ((__u64)k->vlan_outer << 16) | k->vlan_inner;
	__u64 h = (k->remote[0] ^ seed0) * 0x9e3779b97f4a7c15ULL;

	h ^= h >> 32;
	h = (h ^ k->remote[1] ^ seed1) * 0xc2b2ae3d27d4eb4fULL;
	h ^= h >> 29;
	h = (h ^ k->local[0]) * 0x165667b19e3779f9ULL;
	h ^= h >> 32;
	h = (h ^ k->local[1] ^ ports) * 0xc2b2ae3d27d4eb4fULL;
	h ^= h >> 29;
	h *= 0x9e3779b97f4a7c15ULL;
	h ^= h >> 32;
	return h | 2;
}

static __always_inline int flow_key_equal(const struct flow_key *a, const struct flow_key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4])) == 0;
}

#endif
