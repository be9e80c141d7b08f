/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* This file finds connections in the table. A bucket holds 8 of them, their
 * tags in one cache line. */
#ifndef XLANE_SORTER_FLOWTABLE_H
#define XLANE_SORTER_FLOWTABLE_H

#include "maps.h"

#define NEWER(a, b) ((__s32)((__u32)(a) - (__u32)(b)) > 0)
#define NOT_OLDER(a, b) ((__s32)((__u32)(a) - (__u32)(b)) >= 0)

/* The number of buckets is a power of two that the loader sets beside max_entries. */
const volatile __u32 bucket_mask = FLOW_BUCKETS - 1;

static __always_inline struct sorter_counters *counters_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

static __always_inline struct sorter_state *state_shared(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&state, &zero);
}

static __always_inline struct sorter_config *config_now(void)
{
	__u32 zero = 0;
	struct sorter_config *cfg = bpf_map_lookup_elem(&config, &zero);

	return cfg && cfg->version == LAYOUT_VERSION ? cfg : 0;
}

static __always_inline void count_event(enum event e)
{
	struct sorter_counters *c = counters_here();

	if (c && e < EVENT_COUNT)
		c->event[e]++;
}

/* flow_find returns the connection with this key, or 0. */
static __always_inline struct flow *flow_find(struct flow_bucket *b, const struct flow_key *key, __u64 tag)
{
#pragma unroll
	for (int i = 0; i < BUCKET_WAYS; i++) {
		/* two keys with one 63-bit hash: the later one stays untracked */
		if (b->tag[i] == tag)
			return flow_key_equal(&b->flow[i].key, key) ? &b->flow[i] : 0;
	}
	return 0;
}

static __always_inline struct flow_bucket *bucket_of(__u64 tag)
{
	__u32 index = (__u32)(tag >> 20) & bucket_mask;

	return bpf_map_lookup_elem(&flow_by_key, &index);
}

#endif
