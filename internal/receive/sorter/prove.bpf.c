//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* At the host's side, where packets leave the queues: while a connection waits
 * to change queue, it notes how far that connection's payload has come. It
 * changes no packet, and does next to nothing while none waits. */
#include "flowtable.h"
#include "skb.h"

SEC("tcx/ingress")
int prove_skb(struct __sk_buff *skb)
{
	struct sorter_state *s = state_shared();
	struct sorter_config *cfg = config_now();
	struct flow_bucket *b;
	struct packet p = {};
	struct flow *f;
	__u32 end;
	__u64 tag;

	if (!s || !cfg || s->pending == 0)
		return TCX_PASS_ON;
	if (parse_skb(skb, &p) != PARSED_TCP)
		return TCX_PASS_ON;
	end = p.seq + p.payload + (p.flags & TCP_FIN ? 1 : 0);
	if (end == p.seq)
		return TCX_PASS_ON;

	struct flow_key key = {
		.remote = { p.src[0], p.src[1] },
		.local = { p.dst[0], p.dst[1] },
		.remote_port = p.src_port,
		.local_port = p.dst_port,
		.vlan_outer = p.vlan[0],
		.vlan_inner = p.vlan[1],
	};
	tag = flow_hash(&key, cfg->seed0, cfg->seed1);
	b = bucket_of(tag);
	f = b ? flow_find(b, &key, tag) : 0;
	if (f && f->pending && NEWER(end, f->proved_end))
		f->proved_end = end;
	return TCX_PASS_ON;
}

char _license[] SEC("license") = "Dual BSD/GPL";
