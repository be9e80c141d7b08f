//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The sorter in its tc form, at the egress of the adapter's side of a veth: it
 * chooses the far end's transmit queue, which is the host's receive queue. */
#include "decide.h"
#include "skb.h"

/* finish is the one way out: it counts, sets the queue, and lets the packet go on. */
static __always_inline int finish(struct __sk_buff *skb, const struct sorter_config *cfg, struct decision d,
				  __u32 segments)
{
	count_packet(d, skb->len, segments);
	if (cfg) {
		__u8 hwq = cfg->hwq[d.queue & (QUEUE_SLOTS - 1)];

		if (!hwq)
			hwq = cfg->hwq[QUEUE_PRIMARY];
		skb->queue_mapping = hwq;
	}
	return TCX_PASS_ON;
}

SEC("tcx/egress")
int sort_skb(struct __sk_buff *skb)
{
	struct sorter_config *cfg = config_now();
	struct decision d = { .queue = QUEUE_PRIMARY, .reason = REASON_OFF };
	__u32 segments = skb->gso_segs ? skb->gso_segs : 1;
	struct packet p = {};
	enum parsed what;

	if (!cfg)
		return finish(skb, cfg, d, segments);
	what = parse_skb(skb, &p);
	d = decide(cfg, what, &p, skb->len, segments);
	return finish(skb, cfg, d, segments);
}

/* Go gets these enums from here: a type that no variable has does not reach the object file. */
const enum reason *unused_reason __attribute__((unused));
const enum event *unused_event __attribute__((unused));
const enum queue_id *unused_queue_id __attribute__((unused));
const enum limit *unused_limit __attribute__((unused));
const enum flow_flag *unused_flow_flag __attribute__((unused));

char _license[] SEC("license") = "Dual BSD/GPL";
