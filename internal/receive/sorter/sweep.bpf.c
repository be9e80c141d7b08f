//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The sweeper, run by the daemon from time to time: it releases bulk
 * connections that fell silent, lets idle ones arrive on the queue they belong
 * on, and takes forgotten ones out of the table. Without it (no daemon) the
 * same happens at a connection's next packet, or when its place is needed. */
#include "track.h"

struct sweep {
	__u64 now;
	struct sorter_config *cfg;
};

static long sweep_bucket(void *map, const __u32 *index, struct flow_bucket *b, struct sweep *s)
{
	struct sorter_state *shared = state_shared();
	struct sorter_config *cfg = config_now();

	if (!shared || !cfg)
		return 1;
	for (int i = 0; i < BUCKET_WAYS; i++) {
		struct flow *f = &b->flow[i];
		__u64 tag = b->tag[i];
		__s64 idle_ns;

		if (tag < 2)
			continue;
		idle_ns = s->now - f->last_ns;
		if (idle_ns <= (__s64)cfg->silence_ns)
			continue;
		unregister(f, EVENT_RELEASED_SILENT);
		if (idle_ns <= (__s64)cfg->forget_ns && !(f->flags & FLOW_CLOSING))
			continue;
		if (__sync_val_compare_and_swap(&b->tag[i], tag, 0) == tag) {
			arrive(f);
			__sync_fetch_and_sub(&shared->tracked, 1);
		}
	}
	return 0;
}

SEC("syscall")
int sweep_flows(void *ctx)
{
	struct sweep s = { .now = bpf_ktime_get_ns() };

	bpf_for_each_map_elem(&flow_by_key, sweep_bucket, &s, 0);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
