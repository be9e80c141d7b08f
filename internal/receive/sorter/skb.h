/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* This file reads the headers of an skb for the tc programs: it makes them
 * linear where they are not, and takes account of a VLAN tag that the device
 * or the stack keeps beside the frame. */
#ifndef XLANE_SORTER_SKB_H
#define XLANE_SORTER_SKB_H

#include <linux/bpf.h>
#include "parse.h"

enum { TCX_PASS_ON = -1 /* TCX_NEXT, uapi/linux/bpf.h since 6.6: the next program, else the stack */ };

static __always_inline enum parsed parse_skb(struct __sk_buff *skb, struct packet *p)
{
	struct cursor c = { (void *)(long)skb->data, (void *)(long)skb->data_end };
	__u32 linear = c.end - c.pos, tags = 0;
	if (linear < PARSE_PULL && linear < skb->len) {
		__u32 want = skb->len < PARSE_PULL ? skb->len : PARSE_PULL;

		/* on failure (no memory) the linear part must do */
		bpf_skb_pull_data(skb, want);
		c.pos = (void *)(long)skb->data;
		c.end = (void *)(long)skb->data_end;
	}
	if (skb->vlan_present) {
		p->vlan[0] = skb->vlan_tci & 0xfff;
		tags = 1;
	}
	return parse_frame(&c, skb->len, tags, p);
}

#endif
