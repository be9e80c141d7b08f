/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* This file reads the headers of one Ethernet frame with a cursor: one bounds
 * check per header, no helper calls, no maps. parse_frame fills in a packet
 * and returns what the frame is; it never changes the frame. Addresses, ports
 * and VLAN protocol stay in network byte order; lengths, seq and ack are in
 * host order. Frames that it does not understand are said to be so, and it is
 * for the caller to let them pass. */
#ifndef XLANE_PARSE_H
#define XLANE_PARSE_H

#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "flow.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

enum {
	PARSE_VLAN_MAX = 2,    /* tags that are looked through: 802.1ad + 802.1Q */
	PARSE_IP6_EXT_MAX = 6, /* extension headers walked; RFC 8200 4.1 lists six kinds */
	PARSE_PULL = 192,      /* bytes that hold Ethernet, two tags, IPv6, extensions and TCP in practice */

	ETHERTYPE_IP4 = 0x0800,
	ETHERTYPE_IP6 = 0x86dd,
	ETHERTYPE_8021Q = 0x8100,
	ETHERTYPE_8021AD = 0x88a8,

	PROTO_HOPOPTS = 0,
	PROTO_TCP = 6,
	PROTO_UDP = 17,
	PROTO_ROUTING = 43,
	PROTO_FRAGMENT = 44,
	PROTO_AH = 51,
	PROTO_DSTOPTS = 60,

	TCP_FIN = 0x01,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_ACK = 0x10,
};

enum parsed {
	PARSED_TCP,
	PARSED_UDP,
	PARSED_OTHER_L4,  /* IP, whole, but neither TCP nor UDP */
	PARSED_FRAGMENT,  /* any IP fragment, the first one too */
	PARSED_NOT_IP,
	PARSED_MALFORMED, /* cut short, or lengths that contradict each other */
};

struct cursor {
	void *pos;
	void *end;
};

struct packet {
	__u64 src[2];
	__u64 dst[2];
	__be16 src_port;
	__be16 dst_port;
	__u16 vlan[PARSE_VLAN_MAX];
	__u32 payload; /* TCP payload bytes; of a super-packet, all of its segments */
	__u32 seq;
	__u32 ack;
	__u8 flags;
	__u8 is_ip6;
};

struct eth_header {
	__u8 dst[6];
	__u8 src[6];
	__be16 type;
} __attribute__((packed));

struct vlan_header {
	__be16 tci;
	__be16 type;
};

struct ip4_header {
	__u8 version_ihl;
	__u8 tos;
	__be16 total_len;
	__be16 id;
	__be16 frag;
	__u8 ttl;
	__u8 protocol;
	__be16 check;
	__be32 src;
	__be32 dst;
};

struct ip6_header {
	__be32 version_class_flow;
	__be16 payload_len;
	__u8 next;
	__u8 hop_limit;
	__u64 src[2];
	__u64 dst[2];
} __attribute__((packed));

struct ip6_ext_header {
	__u8 next;
	__u8 len;
	__u8 rest[6];
};

struct tcp_header {
	__be16 src;
	__be16 dst;
	__be32 seq;
	__be32 ack;
	__u8 doff;
	__u8 flags;
	__be16 window;
	__be16 check;
	__be16 urgent;
};

struct udp_header {
	__be16 src;
	__be16 dst;
	__be16 len;
	__be16 check;
};

/* parse_l4 reads the transport header at c. l4_len is the number of bytes from
 * there to the end of the IP packet, as the IP header (or, for a super-packet
 * larger than its 16 bits, the frame) says. */
static __always_inline enum parsed parse_l4(struct cursor *c, __u8 proto, __u32 l4_len, struct packet *p)
{
	if (proto == PROTO_TCP) {
		struct tcp_header *t = c->pos;
		__u32 header;

		if ((void *)(t + 1) > c->end)
			return PARSED_MALFORMED;
		header = (t->doff >> 4) * 4;
		if (header < sizeof(*t) || header > l4_len)
			return PARSED_MALFORMED;
		p->src_port = t->src;
		p->dst_port = t->dst;
		p->seq = bpf_ntohl(t->seq);
		p->ack = bpf_ntohl(t->ack);
		p->flags = t->flags;
		p->payload = l4_len - header;
		return PARSED_TCP;
	}
	if (proto == PROTO_UDP) {
		struct udp_header *u = c->pos;

		if ((void *)(u + 1) > c->end || l4_len < sizeof(*u))
			return PARSED_MALFORMED;
		p->src_port = u->src;
		p->dst_port = u->dst;
		return PARSED_UDP;
	}
	return PARSED_OTHER_L4;
}

static __always_inline enum parsed parse_ip4(struct cursor *c, __u32 l3_len, struct packet *p)
{
	struct ip4_header *ip = c->pos;
	__u32 header, total;

	if ((void *)(ip + 1) > c->end)
		return PARSED_MALFORMED;
	header = (ip->version_ihl & 0xf) * 4;
	total = bpf_ntohs(ip->total_len);
	if ((ip->version_ihl >> 4) != 4 || header < sizeof(*ip) || total > l3_len)
		return PARSED_MALFORMED;
	if (total == 0) /* a super-packet beyond 64 KB: the frame's length is right (BIG TCP) */
		total = l3_len;
	if (header > total)
		return PARSED_MALFORMED;
	p->src[0] = V4_MARK;
	p->src[1] = ip->src;
	p->dst[0] = V4_MARK;
	p->dst[1] = ip->dst;
	p->is_ip6 = 0;
	/* more-fragments bit or an offset (RFC 791 3.1) */
	if (ip->frag & bpf_htons(0x3fff))
		return PARSED_FRAGMENT;
	c->pos += header;
	return parse_l4(c, ip->protocol, total - header, p);
}

static __always_inline enum parsed parse_ip6(struct cursor *c, __u32 l3_len, struct packet *p)
{
	struct ip6_header *ip = c->pos;
	__u32 left;
	__u8 next;

	if ((void *)(ip + 1) > c->end)
		return PARSED_MALFORMED;
	if ((*(__u8 *)ip >> 4) != 6 || l3_len < sizeof(*ip))
		return PARSED_MALFORMED;
	left = bpf_ntohs(ip->payload_len);
	if (left > l3_len - sizeof(*ip))
		return PARSED_MALFORMED;
	if (left == 0) /* jumbogram or super-packet: as for IPv4 */
		left = l3_len - sizeof(*ip);
	p->src[0] = ip->src[0];
	p->src[1] = ip->src[1];
	p->dst[0] = ip->dst[0];
	p->dst[1] = ip->dst[1];
	p->is_ip6 = 1;
	next = ip->next;
	c->pos = ip + 1;
	if (next == PROTO_TCP || next == PROTO_UDP)
		return parse_l4(c, next, left, p);
#pragma unroll
	for (int i = 0; i < PARSE_IP6_EXT_MAX; i++) {
		struct ip6_ext_header *ext = c->pos;
		__u32 len;

		if (next == PROTO_FRAGMENT)
			return PARSED_FRAGMENT;
		if (next != PROTO_HOPOPTS && next != PROTO_ROUTING && next != PROTO_DSTOPTS && next != PROTO_AH)
			break;
		if ((void *)(ext + 1) > c->end)
			return PARSED_MALFORMED;
		/* AH counts in words of 4 less 2 (RFC 4302 2.2), the others in words of 8 less 1 */
		len = next == PROTO_AH ? ((__u32)ext->len + 2) * 4 : ((__u32)ext->len + 1) * 8;
		if (len > left)
			return PARSED_MALFORMED;
		left -= len;
		next = ext->next;
		c->pos += len;
	}
	return parse_l4(c, next, left, p);
}

/* parse_frame reads the frame between c->pos and c->end. frame_len is the
 * whole frame's length, which is more than end - pos when only the headers are
 * linear. p must be zeroed by the caller, who may already have put the id of a
 * tag that the device took off into p->vlan[0] (and says so with tags = 1). */
static __always_inline enum parsed parse_frame(struct cursor *c, __u32 frame_len, __u32 tags, struct packet *p)
{
	struct eth_header *eth = c->pos;
	__be16 type;
	__u32 l3_len = frame_len - sizeof(*eth);

	if ((void *)(eth + 1) > c->end || frame_len < sizeof(*eth))
		return PARSED_MALFORMED;
	type = eth->type;
	c->pos = eth + 1;
#pragma unroll
	for (int i = 0; i < PARSE_VLAN_MAX; i++) {
		struct vlan_header *tag = c->pos;

		if (type != bpf_htons(ETHERTYPE_8021Q) && type != bpf_htons(ETHERTYPE_8021AD))
			break;
		if ((void *)(tag + 1) > c->end)
			return PARSED_MALFORMED;
		if (tags >= PARSE_VLAN_MAX)
			return PARSED_NOT_IP; /* a third tag: not ours to look through */
		if (tags == 0)
			p->vlan[0] = bpf_ntohs(tag->tci) & 0xfff;
		else
			p->vlan[1] = bpf_ntohs(tag->tci) & 0xfff;
		tags++;
		type = tag->type;
		c->pos = tag + 1;
		l3_len -= sizeof(*tag);
	}
	if (type == bpf_htons(ETHERTYPE_IP4))
		return parse_ip4(c, l3_len, p);
	if (type == bpf_htons(ETHERTYPE_IP6))
		return parse_ip6(c, l3_len, p);
	return PARSED_NOT_IP;
}

#endif
