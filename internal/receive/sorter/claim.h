/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* This file puts connections into the table and gives up places. Nothing waits
 * for a lock: a place is claimed with one compare-and-swap, and two CPUs that
 * race for a place cost one of them a packet that goes untracked. */
#ifndef XLANE_SORTER_CLAIM_H
#define XLANE_SORTER_CLAIM_H

#include "track.h"

/* worth says how much would be lost by giving up a place: nothing for one that
 * is idle, else the payload it has shown. So a flood of connections that show
 * little cannot push out one that is about to be found. Bulk and moving
 * connections cannot be pushed out before they fall silent. Not inlined: the
 * verifier would follow each of its ways for each place in a bucket (0.6 s). */
__noinline __u64 worth(const struct flow *f, __u64 now, __u64 silence_ns)
{
	__u64 idle_ns;

	if (!f) /* never; the verifier looks at this function by itself */
		return ~0ULL;
	idle_ns = now - f->last_ns;
	if ((__s64)idle_ns > (__s64)silence_ns)
		return 0;
	if (f->flags & FLOW_CLOSING && !f->bulk && !f->pending)
		return 1;
	if (f->bulk || f->pending)
		return ~0ULL;
	return 2 + (__u64)f->streamed;
}

/* flow_claim claims a place for a connection and returns its way, or -1 when
 * every place in the bucket is worth more or another CPU is at it. The caller
 * fills the place in and then writes its tag. Not inlined: it is the rare path. */
static __noinline int flow_claim(struct flow_bucket *b, __u64 now, __u64 silence_ns)
{
	__u64 least = ~0ULL, old, w;
	struct sorter_state *s = state_shared();
	int way = -1;

	if (!b || !s)
		return -1;
	for (int i = 0; i < BUCKET_WAYS; i++) {
		if (b->tag[i] == 0) {
			way = i;
			break;
		}
		w = b->tag[i] == 1 ? ~0ULL : worth(&b->flow[i], now, silence_ns);
		if (w < least) {
			least = w;
			way = i;
		}
	}
	if (way < 0 || way >= BUCKET_WAYS)
		return -1;
	old = b->tag[way];
	if (old == 1 || __sync_val_compare_and_swap(&b->tag[way], old, 1) != old)
		return -1;
	if (old == 0) {
		__sync_fetch_and_add(&s->tracked, 1);
	} else {
		set_want(&b->flow[way], b->flow[way].queue);
		unregister(&b->flow[way], EVENT_RELEASED_SILENT);
		count_event(EVENT_REPLACED);
	}
	count_event(EVENT_TRACKED);
	return way;
}

#endif
