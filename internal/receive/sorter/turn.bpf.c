//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* At the host's side, where packets leave for the wire: it notes what the host
 * sends on tracked connections, which tells a question after an answer from a
 * stream, and, while a connection waits to change queue, what the host has
 * acknowledged. It changes no packet. */
#include "flowtable.h"
#include "skb.h"

SEC("tcx/egress")
int turn_skb(struct __sk_buff *skb)
{
	struct sorter_state *s = state_shared();
	struct sorter_config *cfg = config_now();
	struct flow_bucket *b;
	struct packet p = {};
	struct flow *f;
	__u64 tag;

	if (!s || !cfg || s->tracked == 0)
		return TCX_PASS_ON;
	if (parse_skb(skb, &p) != PARSED_TCP)
		return TCX_PASS_ON;
	if (p.payload == 0 && s->pending == 0)
		return TCX_PASS_ON;

	struct flow_key key = {
		.remote = { p.dst[0], p.dst[1] },
		.local = { p.src[0], p.src[1] },
		.remote_port = p.dst_port,
		.local_port = p.src_port,
		.vlan_outer = p.vlan[0],
		.vlan_inner = p.vlan[1],
	};
	tag = flow_hash(&key, cfg->seed0, cfg->seed1);
	b = bucket_of(tag);
	f = b ? flow_find(b, &key, tag) : 0;
	if (!f)
		return TCX_PASS_ON;
	if (p.payload && NEWER(p.seq + p.payload, f->host_end))
		f->host_end = p.seq + p.payload;
	if (f->pending && p.flags & TCP_ACK && NEWER(p.ack, f->acked_end))
		f->acked_end = p.ack;
	return TCX_PASS_ON;
}

char _license[] SEC("license") = "Dual BSD/GPL";
