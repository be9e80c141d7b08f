/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* This file decides which queue a packet belongs on and, for a connection that
 * is to change queue, whether it may now. It is the part that the tc and the
 * XDP form of the sorter share; it neither reads nor changes the frame.
 *
 * Bulk is one-way payload. A turn is the moment when payload comes in that
 * acknowledges everything the host has sent, the host having sent something
 * since the last turn: a question after an answer. Payload that comes in while
 * the host's own bytes are still unacknowledged (overlap) is no question: the
 * peer did not wait. So a stream with small application acknowledgements, or
 * streams in both directions, have no turns, and request-response has one per
 * request, however large the requests and however the wire spaces them. */
#ifndef XLANE_SORTER_DECIDE_H
#define XLANE_SORTER_DECIDE_H

#include "claim.h"
#include "parse.h"

/* streamed never wraps; beyond this it only matters that it is large. */
enum { STREAMED_MAX = 1 << 30 };

struct decision {
	__u32 queue;
	__u32 reason;
};

static __always_inline void register_bulk(struct flow *f, const struct sorter_config *cfg)
{
	struct sorter_state *s = state_shared();

	if (!s)
		return;
	if (s->registered >= cfg->bulk_max) {
		f->streamed = 0; /* asks again after another threshold's worth */
		count_event(EVENT_REGISTER_REFUSED);
		return;
	}
	if (__sync_val_compare_and_swap(&f->bulk, 0, 1) != 0)
		return;
	__sync_fetch_and_add(&s->registered, 1);
	f->short_runs = 0;
	f->registered_ns = bpf_ktime_get_ns();
	f->found_bytes = f->streamed;
	f->moved_bytes = 0;
	f->window_bytes = 0;
	f->bytes = 0;
	f->packets = 0;
	count_event(EVENT_REGISTERED);
}

/* turned ends a run of one-way payload. */
static __always_inline void turned(struct flow *f, const struct sorter_config *cfg, __u64 now)
{
	if (f->streamed >= cfg->short_run_bytes) {
		f->short_runs = 0;
	} else if (f->bulk && ++f->short_runs >= cfg->short_turns) {
		unregister(f, EVENT_RELEASED_TURNED);
	}
	f->streamed = 0;
	if (!f->bulk)
		f->window_ns = now;
}

static __always_inline void look_for_turn(struct flow *f, const struct sorter_config *cfg, __u32 ack, __u64 now)
{
	__u32 host_end = *(volatile __u32 *)&f->host_end;

	if (NEWER(ack, host_end)) {
		/* the host sent this where the turn program does not see it */
		f->host_end = ack;
		host_end = ack;
	}
	if (host_end == f->turn_end)
		return;
	if (NOT_OLDER(ack, host_end)) {
		if (!(f->flags & FLOW_OVERLAP))
			turned(f, cfg, now);
		f->turn_end = host_end;
		f->flags &= ~FLOW_OVERLAP;
	} else {
		f->flags |= FLOW_OVERLAP;
	}
}

static __always_inline void count_payload(struct flow *f, const struct sorter_config *cfg, __u32 payload, __u64 now)
{
	int window_over = (__s64)(now - f->window_ns) > (__s64)cfg->window_ns;

	if (f->streamed < STREAMED_MAX)
		f->streamed += payload;
	if (f->bulk) {
		f->window_bytes += payload;
		if (window_over) {
			if (f->window_bytes < cfg->window_min_bytes)
				unregister(f, EVENT_RELEASED_SILENT);
			f->window_bytes = 0;
			f->window_ns = now;
		}
		return;
	}
	if (window_over) {
		/* too slow so far for a hold to gain anything: count anew */
		f->streamed = payload;
		f->window_ns = now;
	}
	if (f->streamed >= cfg->threshold_bytes)
		register_bulk(f, cfg);
}

/* try_move changes the queue of a connection once its older packets have left
 * the old one. FLOW_LAST_NEW says that the last packet put there carried new
 * payload, so that whoever has seen its end has seen everything before it. */
static __always_inline void try_move(struct flow *f, const struct sorter_config *cfg, __u64 now)
{
	__s64 idle_ns = now - f->last_ns;
	__u32 new_end = f->new_end;

	if (idle_ns > (__s64)cfg->pause_ns) {
		count_event(EVENT_MOVED_PAUSED);
	} else if (!(f->flags & FLOW_LAST_NEW)) {
		return;
	} else if (NOT_OLDER(*(volatile __u32 *)&f->acked_end, new_end)) {
		count_event(EVENT_MOVED_ACKED);
	} else if (NOT_OLDER(*(volatile __u32 *)&f->proved_end, new_end) &&
		   (cfg->same_cpu || idle_ns > (__s64)cfg->guard_ns)) {
		count_event(EVENT_MOVED_PROVED);
	} else {
		return;
	}
	f->queue = f->want;
	arrive(f);
	if (f->queue == QUEUE_BULKDATA && f->moved_bytes == 0)
		f->moved_bytes = f->streamed;
}

static __always_inline void flow_begin(struct flow *f, const struct flow_key *key, const struct packet *p,
				       __u8 base, __u64 now)
{
	__builtin_memset(f, 0, sizeof(*f));
	f->key = *key;
	f->new_end = p->seq;
	f->host_end = p->ack;
	f->turn_end = p->ack;
	f->queue = base;
	f->want = base;
	f->last_ns = now;
	f->window_ns = now;
}

static __always_inline struct flow *flow_track(struct flow_bucket *b, const struct flow_key *key, __u64 tag,
					       const struct packet *p, const struct sorter_config *cfg,
					       __u8 base, __u64 now)
{
	int way = flow_claim(b, now, cfg->silence_ns);
	struct flow *f;

	if (way < 0 || way >= BUCKET_WAYS) {
		count_event(EVENT_REFUSED);
		return 0;
	}
	f = &b->flow[way];
	flow_begin(f, key, p, base, now);
	*(volatile __u64 *)&b->tag[way] = tag;
	return f;
}

/* settle brings what is known of a connection up to date with this packet. */
static __always_inline void settle(struct flow *f, const struct sorter_config *cfg, const struct packet *p,
				   __u8 base, __u64 now)
{
	__s64 idle_ns = now - f->last_ns;

	if (idle_ns > (__s64)cfg->silence_ns) {
		unregister(f, EVENT_RELEASED_SILENT);
		f->streamed = 0;
		f->flags &= ~FLOW_OVERLAP;
		f->window_ns = now;
	}
	if (p->flags & (TCP_FIN | TCP_RST)) {
		unregister(f, EVENT_RELEASED_CLOSED);
		f->flags |= FLOW_CLOSING;
	} else if (p->flags & TCP_SYN && (f->flags & FLOW_CLOSING || idle_ns > (__s64)cfg->silence_ns)) {
		/* a new connection between the same ports */
		unregister(f, EVENT_RELEASED_CLOSED);
		set_want(f, f->queue);
		f->flags = 0;
		f->streamed = 0;
		f->new_end = p->seq;
		f->host_end = p->ack;
		f->turn_end = p->ack;
		f->queue = base;
		f->want = base;
	}
	if (!cfg->detect)
		unregister(f, EVENT_RELEASED_OFF);
	/* what is sent again says nothing about who waits for whom */
	if (p->payload && NEWER(p->seq + p->payload, f->new_end) && !(p->flags & TCP_SYN)) {
		look_for_turn(f, cfg, p->ack, now);
		if (cfg->detect && !(f->flags & FLOW_CLOSING))
			count_payload(f, cfg, p->payload, now);
	}
}

static __always_inline struct decision decide_tcp(const struct sorter_config *cfg, const struct packet *p,
						  __u32 frame_len, __u32 segments)
{
	struct flow_key key = {
		.remote = { p->src[0], p->src[1] },
		.local = { p->dst[0], p->dst[1] },
		.remote_port = p->src_port,
		.local_port = p->dst_port,
		.vlan_outer = p->vlan[0],
		.vlan_inner = p->vlan[1],
	};
	struct decision d = { .queue = QUEUE_PRIMARY, .reason = REASON_TCP_UNTRACKED };
	__u64 tag = flow_hash(&key, cfg->seed0, cfg->seed1);
	struct flow_bucket *b = bucket_of(tag);
	__u32 end = p->seq + p->payload + (p->flags & TCP_FIN ? 1 : 0);
	__u64 now = bpf_ktime_get_coarse_ns();
	struct flow *f;

	if (cfg->sysdist_rules) {
		struct addr_key addr = { .addr = { p->dst[0], p->dst[1] } };

		if (bpf_map_lookup_elem(&queue_by_addr, &addr)) {
			d.queue = QUEUE_SYSDIST;
			d.reason = REASON_SYSDIST;
		}
	}
	if (!b)
		return d;
	f = flow_find(b, &key, tag);
	if (!f) {
		if (!p->payload || !cfg->detect || p->flags & (TCP_SYN | TCP_RST))
			return d;
		f = flow_track(b, &key, tag, p, cfg, d.queue, now);
		if (!f) {
			if (d.queue == QUEUE_PRIMARY)
				d.reason = REASON_TCP_REFUSED;
			return d;
		}
	}
	settle(f, cfg, p, d.queue, now);
	set_want(f, f->bulk ? QUEUE_BULKDATA : d.queue);
	if (f->want != f->queue) {
		now = bpf_ktime_get_ns(); /* the guard is shorter than the coarse clock's step */
		try_move(f, cfg, now);
	}
	if (end != p->seq && NEWER(end, f->new_end)) {
		f->new_end = end;
		f->flags |= FLOW_LAST_NEW;
	} else {
		f->flags &= ~FLOW_LAST_NEW;
	}
	f->last_ns = now;
	if (f->bulk) {
		f->bytes += frame_len;
		f->packets += segments;
	}
	d.queue = f->queue;
	if (f->want != f->queue)
		d.reason = REASON_WAITING;
	else if (f->queue == QUEUE_BULKDATA)
		d.reason = REASON_BULK;
	else if (f->queue == QUEUE_PRIMARY)
		d.reason = REASON_INTERACTIVE;
	else
		d.reason = REASON_SYSDIST;
	return d;
}

static __always_inline struct decision decide_udp(const struct sorter_config *cfg, const struct packet *p)
{
	struct decision d = { .queue = QUEUE_PRIMARY, .reason = REASON_UDP };
	__u16 port = bpf_ntohs(p->dst_port);
	struct addr_key addr = { .addr = { p->dst[0], p->dst[1] } };

	if (cfg->ee_port_last == 0 || port < cfg->ee_port_first || port > cfg->ee_port_last)
		return d;
	if (!bpf_map_lookup_elem(&local_addr, &addr))
		return d;
	d.queue = QUEUE_EE;
	d.reason = REASON_EE;
	return d;
}

static __always_inline struct decision decide(const struct sorter_config *cfg, enum parsed what,
					      const struct packet *p, __u32 frame_len, __u32 segments)
{
	struct decision d = { .queue = QUEUE_PRIMARY, .reason = REASON_NOT_TCP };

	switch (what) {
	case PARSED_TCP:
		return decide_tcp(cfg, p, frame_len, segments);
	case PARSED_UDP:
		return decide_udp(cfg, p);
	case PARSED_FRAGMENT:
		d.reason = REASON_FRAGMENT;
		break;
	case PARSED_NOT_IP:
		d.reason = REASON_NOT_IP;
		break;
	case PARSED_MALFORMED:
		d.reason = REASON_MALFORMED;
		break;
	case PARSED_OTHER_L4:
		break;
	}
	return d;
}

static __always_inline void count_packet(struct decision d, __u32 frame_len, __u32 segments)
{
	struct sorter_counters *c = counters_here();

	if (!c)
		return;
	c->queue_packets[d.queue & (QUEUE_SLOTS - 1)] += segments;
	c->queue_bytes[d.queue & (QUEUE_SLOTS - 1)] += frame_len;
	c->reason[d.reason & (REASON_SLOTS - 1)] += segments;
}

#endif
